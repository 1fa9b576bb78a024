"""Proposed changes of the voters at the leader: one at a time, once its whole log is applied."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.command_codec import encode
from cordwood.cluster.metadata.commands import AddVoter, BrokerId
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.proposers import check_level
from cordwood.cluster.metadata.raft import entry as entry_format
from cordwood.cluster.metadata.raft.node import RaftNode
from cordwood.cluster.metadata.recent import is_late
from cordwood.cluster.metadata.voter_changes import VoterChange, completed
from cordwood.cluster.metadata.voters import of_rows

CATCH_UP_S = 4.0
"""The time that a broker has to catch up before its addition is refused. Less than a proposal's timeout."""
CAUGHT_UP_ENTRIES = 64
"""A voter that lacks no more entries than these keeps the commits going."""

_events = structlog.get_logger("quorum")

Decline = Callable[[BrokerId | None, bytes, CommandRefused], None]
"""Answers the broker that sent a proposal, None for this one: sender, tag, refusal."""


@dataclass(slots=True)
class _Waiting:
    entry: bytes
    change: VoterChange
    sender: BrokerId | None
    since_s: float


class VoterProposals:
    """The proposed changes that this leader has not decided yet, in their order.

    A change is appended only while the image has every entry of the log: a change that the image accepts then is
    accepted by every broker, and no other change of the voters is uncommitted. The leader has then committed an entry
    of its own term, without which two leaders could change the same set in different ways.
    """

    def __init__(self, node: RaftNode, configured: Mapping[BrokerId, tuple[str, int]], decline: Decline) -> None:
        self._node, self._configured, self._decline = node, configured, decline
        self._waiting: dict[bytes, _Waiting] = {}

    @property
    def holds_back(self) -> bool:
        """True while a change waits for the end of the log: nothing else is appended meanwhile."""
        first = next(iter(self._waiting.values()), None)
        return first is not None and not self._lags(first.change) and not self._node.has_applied_all

    def take(self, entry: bytes, change: VoterChange, sender: BrokerId | None, now_s: float) -> None:
        """Take a proposal, unless it is waiting already: proposers send it again to a new leader."""
        tag = entry_format.decode(entry).tag
        self._waiting.setdefault(tag, _Waiting(entry, change, sender, now_s))

    @property
    def is_waiting(self) -> bool:
        """Whether a change waits to be appended or refused."""
        return bool(self._waiting)

    def clear(self) -> None:
        """Drop all proposals: another voter leads, and their proposers send them again."""
        self._waiting.clear()

    def decide(self, image: Image, now_s: float) -> None:
        """Append or refuse the first proposal, once the image has the whole log."""
        for tag, waiting in list(self._waiting.items()):
            lags = self._lags(waiting.change)
            if lags and now_s - waiting.since_s < CATCH_UP_S:
                continue
            if not lags and not self._node.has_applied_all:
                return
            del self._waiting[tag]
            try:
                if lags:
                    raise CommandRefused(ErrorCode.request_timed_out, lags)
                self._append(waiting, image)
            except CommandRefused as refusal:
                _events.warning("voters.refused", broker=waiting.change.broker_id, reason=refusal.message)
                self._decline(waiting.sender, tag, refusal)

    def _append(self, waiting: _Waiting, image: Image) -> None:
        """Append the completed change. Raises CommandRefused."""
        tag, after, _ = entry_format.decode(waiting.entry)
        if tag in image.recent:
            # An earlier leader has appended the change, and the proposer gets the outcome from its image.
            return
        if after is None or is_late(after, self._node.log.end + 1):
            raise CommandRefused(ErrorCode.request_timed_out, "The change of the voters arrived too late: try again.")
        check_level(waiting.change, image)
        change = completed(image, waiting.change, self._configured)
        if len(change.voters) < len(image.voters or self._configured):
            self._check_majority(of_rows(change.voters))
        _events.info("voters.change", change=type(change).__name__, broker=change.broker_id, voters=str(change.voters))
        self._node.append(entry_format.encode(tag, after, encode(change)))

    def _lags(self, change: VoterChange) -> str:
        """Return a sentence if a broker that is to be added has not caught up with the log; otherwise ""."""
        if not isinstance(change, AddVoter) or change.broker_id in self._node.voters:
            return ""
        progress = self._node.progress_of(change.broker_id)
        if self._node.is_caught_up(change.broker_id, CAUGHT_UP_ENTRIES):
            return ""
        if progress is None:
            return (
                f"Broker {change.broker_id} is not connected to the leader of the metadata quorum: start it with a"
                " controller listener, and with controller.quorum.bootstrap.servers or controller.quorum.voters."
            )
        return f"Broker {change.broker_id} lacks {self._node.log.end - progress.counted} metadata entries."

    def _check_majority(self, voters: Mapping[BrokerId, object]) -> None:
        """Raise CommandRefused if a removal could not be committed, because too many of the remaining voters lag."""
        lagging = [
            voter
            for voter in voters
            if voter in self._node.others and not self._node.is_caught_up(voter, CAUGHT_UP_ENTRIES)
        ]
        if len(lagging) > (len(voters) - 1) // 2:
            message = (
                f"Without that voter, too few voters would have the metadata: {', '.join(map(str, lagging))} of the"
                f" remaining {len(voters)} lag or are down. Start them, or remove them first."
            )
            raise CommandRefused(ErrorCode.invalid_request, message)
