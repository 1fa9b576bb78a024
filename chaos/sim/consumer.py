"""Simulated consumers by assignment: they read a partition from the start and record everything they receive."""

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN, content_of
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.producer import Alarm
from cordwood.chaos.workload import decode as value_in
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import BatchHeader, peek, split
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import decode
from cordwood.storage.types import NO_EPOCH

ANY_RACK = "somewhere"
"""Rack id of consumers that read from followers; a follower serves only requests with a rack (KIP-392)."""
MAX_WAIT_S = 1.0
FETCH_BYTES = 64 << 10
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
BATCHES_KEPT = 512
"""Decoded batches that are kept: most batches are read by several consumers."""


class FetchContext(NamedTuple):
    """The start time of a fetch, and the epoch of the leader that got it; BY_FOLLOWER for any replica."""

    at_ns: int
    leader_epoch: int


class Reader:
    """One consumer's reader of one partition."""

    def __init__(
        self,
        client: SimulatedClient,
        number: int,
        partition: int,
        history: HistoryBuilder,
        alarm: Alarm,
        *,
        any_replica: bool = False,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        self.client, self.partition, self._isolation = client, partition, isolation
        self._number, self._history, self._alarm, self._any_replica = number, history, alarm, any_replica
        self.max_wait_s = MAX_WAIT_S
        self.position = 0
        self.last_record = UNKNOWN
        """The offset of the last record that was read."""
        self.last_epoch: int = NO_EPOCH
        """The leader epoch of the last batch that was read."""
        self._valid_in: int = NO_EPOCH
        """The leader epoch in which the position was last validated against the leader's log."""
        self._polls = 0

    def begin(self, position: int) -> None:
        """Continue reading at `position`."""
        self.position, self.last_epoch = position, NO_EPOCH
        self._history.assign(self._number, self.partition, self.client.now_ns)

    async def run(self) -> None:
        """Run forever."""
        self.begin(0)
        while True:
            if not await self.poll():
                await self.client.refresh_patiently()

    async def poll(self) -> bool:
        """Send one fetch. Return False if no broker answered it and the metadata may be stale."""
        client = self.client
        address = client.any_replica(self.partition) if self._any_replica else client.leader(self.partition)
        if address is None or not await self.is_valid():
            return False
        asked = self.asked()
        try:
            answer = await client.ask(address, self._request())
        except OSError:
            return False
        if answer.error_code is not ErrorCode.none or not answer.responses:
            return False
        if self._any_replica:
            client.did("read-from-any-replica")
        return await self.fetched(answer.responses[0].partitions[0], asked)

    def asked(self) -> FetchContext:
        """Return the parameters of a fetch that starts now."""
        epoch = BY_FOLLOWER if self._any_replica else self.client.leader_epochs[self.partition]
        return FetchContext(self.client.now_ns, epoch)

    async def fetched(self, row: Any, asked: FetchContext) -> bool:
        """Process one partition of a Fetch response. Return False for an error code."""
        if row.error_code is ErrorCode.offset_out_of_range:
            await self._start_again()
        if row.error_code is not ErrorCode.none:
            return False
        if row.diverging_epoch is not None and row.diverging_epoch.end_offset >= 0:
            self._alarm("truncated-read", f"{self._name} at {self.position} received {row.diverging_epoch}")
        self._history.watermark(
            self._number,
            self.partition,
            # A new leader does not return a high watermark before it knows one.
            int(row.high_watermark),
            int(row.log_start_offset),
            self.client.now_ns,
            invoked_ns=asked.at_ns,
            leader_epoch=asked.leader_epoch,
            last_stable=int(row.last_stable_offset),
            read_end=self._take(bytes(row.records or b""), row.aborted_transactions or ()),
        )
        return True

    def row(self) -> object:
        """Return the partition's part of a Fetch request."""
        return part(
            ApiKey.FETCH,
            "FetchPartition",
            partition=self.partition,
            current_leader_epoch=-1 if self._any_replica else self.client.leader_epochs[self.partition],
            fetch_offset=self.position,
            last_fetched_epoch=NO_EPOCH if self._any_replica else self.last_epoch,
            partition_max_bytes=FETCH_BYTES,
        )

    async def is_valid(self) -> bool:
        """Validate the position with a new leader (KIP-320). Return False if the leader did not answer."""
        epoch = self.client.leader_epochs.get(self.partition, NO_EPOCH)
        if self._any_replica or self.last_epoch == NO_EPOCH or epoch == self._valid_in:
            return True
        asked_ns = self.client.now_ns
        answer = await self._ask_leader(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ("OffsetForLeaderTopic", "topic"),
            part(
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                "OffsetForLeaderPartition",
                partition=self.partition,
                current_leader_epoch=epoch,
                leader_epoch=self.last_epoch,
            ),
        )
        if answer is None:
            return False
        self.client.did("offset-for-leader-epoch")
        reported, times = (int(answer.leader_epoch), int(answer.end_offset)), (asked_ns, self.client.now_ns)
        self._history.epoch_end(self._number, self.partition, self.last_epoch, reported, times, epoch)
        # An unknown epoch means that all its records were deleted; the fetch then returns OFFSET_OUT_OF_RANGE.
        if 0 <= answer.end_offset < self.position:
            self._alarm(
                "truncated-read",
                f"{self._name} has read up to {self.position} in epoch {self.last_epoch}, which ends at {answer}",
            )
        self._valid_in = epoch
        return True

    async def offset_at(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> int | None:
        """Return the start, the end, or the offset at a time; UNKNOWN if there is none, None if no leader answered."""
        epoch, asked_ns = self.client.leader_epochs.get(self.partition, NO_EPOCH), self.client.now_ns
        answer = await self._ask_leader(
            ApiKey.LIST_OFFSETS,
            ("ListOffsetsTopic", "name"),
            part(
                ApiKey.LIST_OFFSETS,
                "ListOffsetsPartition",
                partition_index=self.partition,
                current_leader_epoch=epoch,
                timestamp=timestamp,
            ),
            isolation_level=isolation,
        )
        # With read_committed, only records below the last stable offset are found.
        if answer is not None and timestamp >= 0 and isolation == READ_UNCOMMITTED:
            reported, times = (int(answer.offset), int(answer.timestamp)), (asked_ns, self.client.now_ns)
            self._history.looked_up(self._number, self.partition, timestamp, reported, times, epoch)
        return None if answer is None else int(answer.offset)

    @property
    def _name(self) -> str:
        return f"{self.client.name}, partition {self.partition},"

    async def _ask_leader(self, api: ApiKey, topic: tuple[str, str], row: object, **more: object) -> Any:
        """Return the leader's answer for the partition; None if the broker does not lead or does not answer."""
        client, (of_topic, name) = self.client, topic
        address = client.leader(self.partition)
        if address is None:
            return None
        rows = part(api, of_topic, **{name: client.topic, "partitions": (row,)})
        try:
            answer = await client.ask(address, message(api, replica_id=-1, topics=(rows,), **more))
        except OSError:
            return None
        reported = answer.topics[0].partitions[0]
        return reported if reported.error_code is ErrorCode.none else None

    async def _start_again(self) -> None:
        """Restart at the log start if the records at the position were deleted; a lagging broker's error is ignored."""
        start = await self.offset_at(EARLIEST)
        if start is not None and start > self.position:
            self.client.did("offset-out-of-range")
            self.begin(start)

    def _request(self) -> object:
        topic = part(ApiKey.FETCH, "FetchTopic", topic=self.client.topic, partitions=(self.row(),))
        return message(
            ApiKey.FETCH,
            max_wait=duration(self.max_wait_s),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation,
            topics=(topic,),
            forgotten_topics_data=(),
            rack_id=ANY_RACK if self._any_replica else "",
        )

    def _take(self, data: bytes, aborted: Sequence[Any]) -> int:
        """Record whole batches, of which the first may begin before the position. Return their end, or UNKNOWN."""
        self._polls += 1
        try:
            batches = _decoded_batches(data)
        except CorruptBatch as corrupt:
            self._alarm("corrupt-read", f"{self.client.name} was sent {corrupt} in partition {self.partition}")
            return UNKNOWN
        now_ns, poll = self.client.now_ns, self._history.poll
        if self._isolation == READ_COMMITTED:
            batches = tuple(_without_aborted(batches, aborted))
        for header, records in batches:
            self._history.batch(self.partition, header.base_offset, header.end, header.leader_epoch, now_ns)
            if not records and header.end > self.position:
                # Only a control batch, and one of an aborted transaction, is passed over whole.
                self.position, self.last_epoch = header.end, header.leader_epoch
            for offset, value, content in records:
                if offset >= self.position:
                    poll(self._number, self.partition, offset, value, now_ns, self._polls, content)
                    self.position, self.last_epoch = offset + 1, header.leader_epoch
                    self.last_record = offset
        return batches[-1][0].end if batches else UNKNOWN


_Decoded = tuple[BatchHeader, list[tuple[int, int, int]]]
"""The header of a batch, and the offset, value and content of each record; none of a control batch."""


def _without_aborted(batches: Sequence[_Decoded], aborted: Sequence[Any]) -> Iterator[_Decoded]:
    """Yield the batches of an answer, without the records of its aborted transactions, as consumers filter them.

    A transaction is aborted from its first offset up to the next marker of its producer.
    """
    to_come = deque(sorted((int(row.first_offset), int(row.producer_id)) for row in aborted))
    now_aborted: set[int] = set()
    for header, records in batches:
        while to_come and to_come[0][0] < header.end:
            now_aborted.add(to_come.popleft()[1])
        if header.is_control:
            now_aborted.discard(header.producer_id)
        is_aborted = header.is_transactional and header.producer_id in now_aborted
        yield header, [] if is_aborted else records


@functools.lru_cache(BATCHES_KEPT)
def _decoded_batches(data: bytes) -> tuple[_Decoded, ...]:
    """Return all batches of a response, which several consumers get alike. Raises CorruptBatch."""
    return tuple([decoded(batch) for batch in split(data)])


@functools.lru_cache(BATCHES_KEPT)
def decoded(batch: bytes) -> _Decoded:
    """Return a batch. Raises CorruptBatch."""
    header = peek(batch)
    if header.is_control:
        return header, []
    rows = [
        (record.offset, value_in(record.value), content_of(record.key, record.headers, record.timestamp))
        for record in decode(batch)
    ]
    return header, rows
