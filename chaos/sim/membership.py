"""The membership of a simulated member in either protocol: its partitions, their readers, commits and ownerships."""

from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN, Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import Reader
from cordwood.chaos.sim.group_coordinator import MOVED, CoordinatorOfGroup
from cordwood.chaos.sim.kafka import SimulatedClient, message, part
from cordwood.chaos.sim.producer import Alarm
from cordwood.cluster.kafka.api_keys import ApiKey

POLL_S = 0.05
EPOCHS_VERSION = 9
"""The version of OffsetCommit and OffsetFetch with member epochs (KIP-848)."""

REFUSED = frozenset(
    {
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
    }
)
"""Codes of commits that have no effect: the member has to learn first what it is."""


class MembershipLost(Exception):
    """The coordinator does not know the member with its epoch: it has to begin again."""


@dataclass(slots=True)
class _Owned:
    """A partition that is the member's, as confirmed by one coordinator."""

    epoch: int
    coordinator: int
    since_ns: int
    until_ns: int
    is_begun: bool = False
    """Whether its reader has the group's committed offset."""


class SimulatedMembership:
    """The partitions of one member program, over all of its lives. `number` is its number among all consumers."""

    def __init__(
        self,
        client: SimulatedClient,
        number: int,
        group: tuple[int, str],
        partitions: int,
        history: HistoryBuilder,
        alarm: Alarm,
    ) -> None:
        self.client, self.number, self.history, self.alarm = client, number, history, alarm
        self.group_number, self.group = group
        self.coordinator = CoordinatorOfGroup(client, self.group)
        self.readers = [
            Reader(client, number, partition, history, alarm, any_replica=False) for partition in range(partitions)
        ]
        for reader in self.readers:
            reader.max_wait_s = POLL_S
        self.owned: dict[int, _Owned] = {}
        self.member_id, self.epoch = "", 0
        self.instance_id: str | None = None
        self.has_lasting_epochs = True
        """Whether the epochs of the group go up only: not where a group without members may change its protocol."""
        self.answered_by = UNKNOWN
        """The broker whose answer the member follows."""

    def got_epoch(self, epoch: int, invoked_ns: int) -> None:
        """Note the epoch, or the generation, that an answer of the coordinator has."""
        self.epoch, self.answered_by = epoch, self.coordinator.broker
        if self.has_lasting_epochs:
            self.history.member_epoch(self.group_number, self.number, epoch, (invoked_ns, self.client.now_ns))

    def got(self, partition: int) -> None:
        """Note that the last answer has a new partition."""
        now_ns = self.client.now_ns
        self.owned[partition] = _Owned(self.epoch, self.answered_by, now_ns, now_ns)

    def confirmed(self, named: frozenset[int], invoked_ns: int) -> None:
        """Note that a request was accepted that named these partitions as the member's."""
        for partition in named & self.owned.keys():
            held, now_ns = self.owned[partition], self.client.now_ns
            if held.coordinator == self.answered_by:
                held.until_ns = max(held.until_ns, invoked_ns)
            if held.coordinator != self.answered_by or held.epoch != self.epoch:
                self._write_down(partition, held)
                self.owned[partition] = _Owned(self.epoch, self.answered_by, now_ns, now_ns, held.is_begun)

    def drop(self, partitions: frozenset[int]) -> None:
        """Stop to own partitions."""
        for partition in sorted(partitions & self.owned.keys()):
            self._write_down(partition, self.owned.pop(partition))

    def drop_all(self) -> None:
        self.drop(frozenset(self.owned))

    def _write_down(self, partition: int, held: _Owned) -> None:
        self.history.owned(
            self.group_number,
            self.number,
            partition,
            held.epoch,
            (held.since_ns, held.until_ns),
            held.coordinator,
        )

    async def poll(self, partition: int) -> None:
        """Read from a partition, first from its committed offset. Raises OSError, MembershipLost."""
        held = self.owned[partition]
        if not held.is_begun:
            offset = await self._committed(partition)
            if self.owned.get(partition) is not held:
                return
            self.readers[partition].begin(max(0, offset))
            held.is_begun = True
        if not await self.readers[partition].poll():
            await self.client.refresh_patiently()

    async def _committed(self, partition: int) -> int:
        api, version, epoch = ApiKey.OFFSET_FETCH, EPOCHS_VERSION, self.epoch
        topic = part(api, "OffsetFetchRequestTopics", version, name=self.client.topic, partition_indexes=(partition,))
        group = part(
            api,
            "OffsetFetchRequestGroup",
            version,
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            topics=(topic,),
        )
        answer = await self.coordinator.ask(message(api, version, groups=(group,), require_stable=False))
        (reported,) = answer.groups
        self._expect(reported.error_code)
        (row,) = reported.topics[0].partitions
        self._expect(row.error_code)
        offset = int(row.committed_offset)
        if self.has_lasting_epochs:
            self.history.read_commit(self.group_number, epoch, partition, offset)
        return offset

    async def commit(self, partitions: frozenset[int]) -> None:
        """Commit the positions of partitions that were read from. Raises OSError, MembershipLost."""
        begun = [at for at in sorted(partitions) if at in self.owned and self.owned[at].is_begun]
        if not begun:
            return
        api, version, epoch = ApiKey.OFFSET_COMMIT, EPOCHS_VERSION, self.epoch
        offsets = {partition: self.readers[partition].position for partition in begun}
        rows = tuple(
            part(
                api,
                "OffsetCommitRequestPartition",
                version,
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
            for partition, offset in offsets.items()
        )
        topic = part(api, "OffsetCommitRequestTopic", version, name=self.client.topic, partitions=rows)
        request = message(
            api,
            version,
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=(topic,),
        )
        codes: dict[int, ErrorCode] = {}
        try:
            answer = await self.coordinator.ask(request)
            codes = {int(row.partition_index): row.error_code for row in answer.topics[0].partitions}
        finally:
            for partition, offset in offsets.items() if self.has_lasting_epochs else ():
                self.history.commit(self.group_number, epoch, partition, offset, _outcome(codes.get(partition)))
        for code in codes.values():
            self._expect(code)

    def _expect(self, code: ErrorCode) -> None:
        """Raise MembershipLost or OSError for an error code."""
        if code is ErrorCode.none:
            return
        if code in REFUSED:
            raise MembershipLost(code.name)
        if code in MOVED:
            self.coordinator.forget()
        raise OSError(code.name)


def _outcome(code: Any) -> Outcome:
    if code is ErrorCode.none:
        return Outcome.OK
    return Outcome.FAIL if code in REFUSED else Outcome.INFO
