"""An internal topic in memory with changing leaders, and commits that a test delays, refuses or loses."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import Bounds, PartitionLeadership, encode_in_transaction
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.replication.verification import VerificationGuard
from cordwood.storage.batch import BatchHeader, peek, split, stamp
from cordwood.storage.control import EndTransactionMarker, decode_marker, encode_marker
from cordwood.storage.errors import DamagedLog
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

BATCHES_PER_READ = 500
FIRST = 1
"""The broker that leads all partitions at first."""


@dataclass
class Partition:
    """Batches by base offset, and the appends that wait for the high watermark."""

    batches: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    leader: int | None = FIRST
    leader_epoch: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    """The epoch of each producer with an ongoing transaction."""

    def append(self, batch: bytes) -> Bounds:
        header = peek(batch)
        start = self.end
        self.batches[start] = stamp(header, start, self.leader_epoch) + batch[16:]
        self.end += header.record_count
        return Bounds(start, self.end)

    def commit(self) -> None:
        self.high_watermark = self.end
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def lose_uncommitted(self, but: int) -> None:
        """Drop the uncommitted batches, except for the first `but` of them."""
        uncommitted = sorted(base for base in self.batches if base >= self.high_watermark)
        for base in uncommitted[but:]:
            del self.batches[base]
        self.end = max([self.high_watermark, *(peek(self.batches[base]).end for base in uncommitted[:but])])


class OffsetsInMemory:
    """The topic. A cleared `read_gate` blocks reads, of `slow_partition` if it is set; `refusal` refuses appends."""

    def __init__(self, partition_count: int = 4, name: str = CONSUMER_OFFSETS) -> None:
        self.name = name
        self.partitions: list[Partition] = []
        self.damaged: set[int] = set()
        self.read_refusal: ErrorCode | None = None
        """The code with which reads are refused, such as those of a broker without free file descriptors."""
        self.read_gate = asyncio.Event()
        self.read_gate.set()
        self.slow_partition: int | None = None
        self.refusal: ErrorCode | None = None
        self.accepts: int | None = None
        """Number of appends after which all are refused; None without such a limit."""
        self.bytes_max: int | None = None
        """Size of a batch above which it is refused."""
        self.appends = 0
        self.appends_too_late = 0
        """Appends of brokers whose leadership was over."""
        self.reads = 0
        self.is_held = False
        self.partition_count = partition_count

    def hold(self) -> None:
        """Stop committing until `release`."""
        self.is_held = True

    def fail_oldest(self, index: int) -> None:
        """Fail the oldest append to a partition that waits for its commit. Its batch is not in the log."""
        partition = self.partitions[index]
        del partition.batches[min(base for base in partition.batches if base >= partition.high_watermark)]
        partition.waiting.pop(0).set_exception(Refused(ErrorCode.coordinator_not_available))

    def release(self) -> None:
        self.is_held = False
        for partition in self.partitions:
            partition.commit()

    def elect(self, index: int, leader: int | None, *, keeping: int = 1_000_000) -> None:
        """Elect another leader, or none. It has the first `keeping` of the uncommitted batches."""
        partition = self.partitions[index]
        partition.leader, partition.leader_epoch = leader, partition.leader_epoch + 1
        partition.lose_uncommitted(keeping)
        waiting, partition.waiting = partition.waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(Refused(ErrorCode.not_coordinator))
        if leader is not None and not self.is_held:
            partition.commit()

    def seen_by(self, broker: int) -> "OffsetsOfBroker":
        return OffsetsOfBroker(self, broker)

    def create(self) -> None:
        if not self.partitions:
            self.partitions = [Partition() for _ in range(self.partition_count)]

    def mark(self, index: int, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        log = self.partitions[index]
        log.epochs.pop(producer.producer_id, None)
        log.append(encode_marker(producer, EndTransactionMarker(is_commit, 0), 0))
        if not self.is_held:
            log.commit()

    def compact(self, index: int) -> None:
        """Compact a partition as the log cleaner does: only batches that are committed and decided."""
        log = self.partitions[index]
        open_batches: dict[int, list[int]] = {}
        aborted: set[int] = set()
        for base, batch in log.batches.items():
            header, marker = peek(batch), decode_marker(batch) if peek(batch).is_control else None
            if marker is not None:
                ended = open_batches.pop(header.producer_id, [])
                aborted.update(() if marker.is_commit else ended)
            elif header.is_transactional:
                open_batches.setdefault(header.producer_id, []).append(base)
        end = min([log.high_watermark, *(base for bases in open_batches.values() for base in bases)])
        decided = {base: batch for base, batch in log.batches.items() if peek(batch).end <= end and base not in aborted}
        data = [batch for batch in decided.values() if not peek(batch).is_control]
        newest = {record.key: record.offset for batch in data for record in decode(batch)}
        kept = {base: batch for base, batch in log.batches.items() if peek(batch).end > end or peek(batch).is_control}
        for batch in data:
            header = peek(batch)
            for record in decode(batch):
                if newest[record.key] == record.offset:
                    alone = _alone(record, header)
                    kept[record.offset] = stamp(peek(alone), record.offset, header.leader_epoch) + alone[16:]
        log.batches = dict(sorted(kept.items()))

    def bounds(self, index: int) -> Bounds:
        return Bounds(self.partitions[index].start, self.partitions[index].end)

    def records(self, index: int) -> list[Record]:
        """Return the records from the log start on."""
        log = self.partitions[index]
        return [
            record
            for data in log.batches.values()
            for batch in split(data)
            for record in decode(batch)
            if record.offset >= log.start and not peek(batch).is_control
        ]


def _alone(record: Record, header: BatchHeader) -> bytes:
    if header.is_transactional:
        return encode_in_transaction([record], ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
    return encode([record])


class OffsetsOfBroker:
    """The topic as one broker's coordinator sees it."""

    def __init__(self, topic: OffsetsInMemory, broker: int) -> None:
        self._topic, self._broker = topic, broker
        self.name = topic.name

    def partition_count(self) -> int:
        return len(self._topic.partitions)

    async def create(self) -> None:
        await asyncio.sleep(0)
        if self._topic.refusal is not None:
            raise Refused(self._topic.refusal)
        self._topic.create()

    def leadership(self, partition: int) -> PartitionLeadership | None:
        log = self._topic.partitions[partition]
        return PartitionLeadership(partition, log.leader_epoch) if log.leader == self._broker else None

    def bounds(self, leadership: PartitionLeadership) -> Bounds:
        log = self._led(leadership)
        return Bounds(log.start, log.end)

    async def committed(self, leadership: PartitionLeadership, end: int) -> None:
        log = self._led(leadership)
        if log.high_watermark < end:
            future = asyncio.get_running_loop().create_future()
            log.waiting.append(future)
            await future

    async def read(self, leadership: PartitionLeadership, offset: int) -> bytes:
        log, topic = self._led(leadership), self._topic
        topic.reads += 1
        await asyncio.sleep(0)
        if topic.slow_partition in (None, leadership.partition):
            await topic.read_gate.wait()
        if topic.read_refusal is not None:
            raise Refused(topic.read_refusal)
        if leadership.partition in topic.damaged:
            raise DamagedLog("a segment", 61, "the checksum does not match")
        return b"".join([batch for batch in log.batches.values() if peek(batch).end > offset][:BATCHES_PER_READ])

    async def append(self, leadership: PartitionLeadership, batch: bytes) -> None:
        self.submit(leadership, batch)
        await self.committed(leadership, self._led(leadership).end)

    def submit(self, leadership: PartitionLeadership, batch: bytes) -> None:
        topic = self._topic
        if self.leadership(leadership.partition) != leadership:
            topic.appends_too_late += 1
        log = self._led(leadership)
        topic.appends += 1
        if topic.refusal is not None:
            raise Refused(topic.refusal)
        if topic.bytes_max is not None and len(batch) > topic.bytes_max:
            raise Refused(ErrorCode.message_too_large)
        if topic.accepts is not None:
            if topic.accepts == 0:
                raise Refused(ErrorCode.coordinator_not_available)
            topic.accepts -= 1
        log.append(batch)
        if not topic.is_held:
            log.commit()

    def begin_verification(
        self,
        leadership: PartitionLeadership,
        producer: ProducerIdAndEpoch,
        *,
        is_v2: bool,  # noqa: ARG002
    ) -> VerificationGuard | None:
        log = self._led(leadership)
        return None if log.epochs.get(producer.producer_id) == producer.epoch else VerificationGuard(cast(Any, log))

    def append_in_transaction(
        self,
        leadership: PartitionLeadership,
        records: Sequence[Record],
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Bounds:
        log, topic = self._led(leadership), self._topic
        if topic.refusal is not None:
            raise Refused(topic.refusal)
        if producer.epoch < log.epochs.get(producer.producer_id, 0):
            raise Refused(ErrorCode.invalid_producer_epoch)
        if producer.producer_id not in log.epochs and guard is None:
            raise Refused(ErrorCode.invalid_txn_state)
        log.epochs[producer.producer_id] = producer.epoch
        appended = log.append(encode_in_transaction(records, producer))
        if not topic.is_held:
            log.commit()
        return appended

    def _led(self, leadership: PartitionLeadership) -> Partition:
        if self.leadership(leadership.partition) != leadership:
            raise Refused(ErrorCode.not_coordinator)
        return self._topic.partitions[leadership.partition]
