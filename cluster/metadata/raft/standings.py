"""The standings of this voter and its peers: the decisions of `formation`, made durable."""

from collections.abc import Callable, Sequence

import structlog

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.formation import decide, is_stuck
from cordwood.cluster.metadata.raft.messages import MalformedMessage, Standing
from cordwood.storage.disk import Disk

_events = structlog.get_logger("quorum")


class Standings:
    """The standings of all voters. A change of the right to vote is on disk before `changed` is called with `own`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        own: Standing,
        others: Sequence[BrokerId],
        changed: Callable[[Standing], None],
        *,
        may_found: bool = True,
    ) -> None:
        """`others` are the other voters. Only a broker that controller.quorum.voters names `may_found` a cluster."""
        self._disk, self._directory = disk, directory
        self._others, self._changed, self._may_found = others, changed, may_found
        self._is_voter = may_found
        self._has_waited = False
        self._heard: dict[BrokerId, Standing] = {}
        self._is_stuck = False
        self.own = own

    def voters_changed(self, others: Sequence[BrokerId], *, is_voter: bool) -> None:
        """Take the voters in force."""
        self._others, self._is_voter = others, is_voter

    def waited(self) -> None:
        """Let the only configured voter found a cluster: none of an existing cluster has dialled it."""
        self._has_waited = True
        self.decide()

    def heard(self, voter: BrokerId, standing: int) -> None:
        """Record a peer's standing, and decide this voter's again. Raises MalformedMessage."""
        if standing not in list(Standing):
            raise MalformedMessage(f"standing {standing}")
        self._heard[voter] = Standing(standing)
        self.decide()

    def lost(self, voter: BrokerId) -> None:
        """Forget the standing of a voter that has disconnected: the standing may change before it reconnects."""
        self._heard.pop(voter, None)

    def decide(self) -> None:
        """Decide this voter's standing from all known standings."""
        self._log_lost_quorum()
        decided = decide(self.own, self._others, self._heard)
        if decided is not Standing.FOUNDING or (self._may_found and (self._others or self._has_waited)):
            self.become(decided)

    def advance(self, term: int, log_end: int) -> None:
        """Decide again while this is open, and make a founder that has voted or has entries a member."""
        if self.own is Standing.EMPTY:
            self.decide()
        if self.own is Standing.FOUNDING and (term or log_end):
            self.become(Standing.MEMBER)

    def become(self, standing: Standing) -> None:
        """Take a standing. It is durable on return if it decides on voting. Blocks. Raises OSError: it stays."""
        if standing is self.own:
            return
        if self.own.may_vote != standing.may_vote or self.own is Standing.EMPTY:
            storage.write_standing(self._disk, self._directory, standing)
        _events.info("voter.standing", was=self.own.name.lower(), now=standing.name.lower())
        self.own = standing
        self._changed(standing)

    def _log_lost_quorum(self) -> None:
        """Log a lost quorum once each time that it occurs."""
        is_lost = self._is_voter and is_stuck(self.own, self._others, self._heard)
        was_stuck, self._is_stuck = self._is_stuck, is_lost
        if self._is_stuck and not was_stuck:
            forgetful = {voter: standing.name.lower() for voter, standing in sorted(self._heard.items())}
            _events.error(
                "quorum.lost",
                own=self.own.name.lower(),
                others=str(forgetful),
                what="a majority of the voters has lost the metadata: restore their metadata directories",
            )
