"""Internal topics of coordinators: creation with the first use, leadership, reads and appends."""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.rows import broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import CreateTopic
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.proposals.topics import new_topic
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.replicas import Replicas
from cordwood.replication.verification import VerificationGuard
from cordwood.storage.batch import TRANSACTIONAL, check
from cordwood.storage.errors import (
    BatchTooLarge,
    DamagedLog,
    DiskFailed,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    OutOfResources,
    StaleProducerEpoch,
)
from cordwood.storage.records import Record, encode
from cordwood.storage.steps import at_once
from cordwood.storage.types import ProducerIdAndEpoch

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 16 << 20
"""Largest record, unless a topic has a limit of its own: a transaction on all partitions."""

_CODE_UNIT = struct.Struct(">H")
_events = structlog.get_logger("coordination")


class Bounds(NamedTuple):
    """Log start and log end of a partition; half-open."""

    start: int
    end: int


class PartitionLeadership(NamedTuple):
    """One broker's leadership of one partition, which ends with the leader epoch."""

    partition: int
    leader_epoch: int


class TopicCreation(NamedTuple):
    """The name of an internal topic, and the settings with which it is created."""

    name: str
    partitions: int
    replication_factor: int
    segment_bytes: int
    cleanup_policy: str = "compact"
    batch_bytes_max: int = RECORD_BYTES_MAX


class InternalTopic(Protocol):
    """A topic as its coordinator needs it. Methods raise Refused with a coordinator's error code.

    The code is NOT_COORDINATOR if the leadership has ended, or ends before the reply.
    """

    @property
    def name(self) -> str: ...

    def partition_count(self) -> int:
        """Return the number of partitions; 0 if the topic does not exist."""
        ...

    async def create(self) -> None:
        """Create the topic if there is none."""
        ...

    def leadership(self, partition: int) -> PartitionLeadership | None:
        """Return the leadership by which this broker coordinates the partition's keys; None if it does not lead."""
        ...

    def bounds(self, leadership: PartitionLeadership) -> Bounds:
        """Return log start and log end of the partition, uncommitted records included."""
        ...

    async def committed(self, leadership: PartitionLeadership, end: int) -> None:
        """Wait until all records below `end` are committed."""
        ...

    async def read(self, leadership: PartitionLeadership, offset: int) -> bytes:
        """Return whole batches, the first with `offset`; b"" at the log end. Also raises StorageError for damage."""
        ...

    async def append(self, leadership: PartitionLeadership, batch: bytes) -> None:
        """Append before the first await, then wait until the batch is committed.

        After a refusal nothing was appended, unless the leadership has ended: then the outcome is unknown.
        """
        ...

    def submit(self, leadership: PartitionLeadership, batch: bytes) -> None:
        """Append without waiting until the batch is committed. After a refusal nothing was appended."""
        ...

    def begin_verification(
        self, leadership: PartitionLeadership, producer: ProducerIdAndEpoch, *, is_v2: bool
    ) -> VerificationGuard | None:
        """Begin to verify that this partition is in a producer's transaction; None if the log shows that it is."""
        ...

    def append_in_transaction(
        self,
        leadership: PartitionLeadership,
        records: Sequence[Record],
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Bounds:
        """Append a batch of a transaction, which is not committed yet. Return where it is.

        Also raises Refused with INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
        """
        ...


def partition_of(key: str, partition_count: int) -> int:
    """Return the partition of a group id or transactional id, by Java's String.hashCode as in Kafka."""
    number = 0
    for (unit,) in _CODE_UNIT.iter_unpack(key.encode("utf-16-be")):
        number = (31 * number + unit) & 0xFFFFFFFF
    if number & 0x80000000:
        # The one number without a positive counterpart becomes 0.
        number = (0x100000000 - number) & 0x7FFFFFFF
    return number % partition_count


class ReplicatedTopic:
    """An internal topic of this cluster, replicated like any other. The leader of a partition is its coordinator."""

    def __init__(
        self,
        creation: TopicCreation,
        quorum: Quorum,
        replicas: Replicas,
        settings: Settings,
        wall_clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.name, self._creation = creation.name, creation
        self._quorum, self._replicas, self._settings = quorum, replicas, settings
        self._wall_clock, self._rng = wall_clock, rng
        self._obstacle = ""

    def partition_count(self) -> int:
        topic = self._quorum.image.topics_by_name.get(self.name)
        return 0 if topic is None else len(topic.partitions)

    async def create(self) -> None:
        if self.name in self._quorum.image.topics_by_name:
            return
        try:
            await self._quorum.propose(self._create_topic())
        except CommandRefused as refusal:
            # Another broker may have created the topic first.
            if self.name not in self._quorum.image.topics_by_name:
                raise self._not_created(refusal.message) from refusal
        except (Refused, QuorumFailed) as error:
            raise self._not_created(str(error)) from error

    def leadership(self, partition: int) -> PartitionLeadership | None:
        try:
            return PartitionLeadership(partition, self._replicas.led(self.name, partition).leader_epoch)
        except PartitionRefused:
            return None

    def bounds(self, leadership: PartitionLeadership) -> Bounds:
        log = self._led(leadership).log
        return Bounds(log.log_start, log.log_end)

    async def committed(self, leadership: PartitionLeadership, end: int) -> None:
        try:
            await self._led(leadership).committed(end)
        except PartitionRefused as refused:
            raise _as_refused(refused) from refused

    async def read(self, leadership: PartitionLeadership, offset: int) -> bytes:
        led = self._led(leadership)
        log = led.log
        try:
            if offset < log.local_start:
                if archived := await led.partition.context.archive.batches(led.partition, offset, READ_BYTES):
                    return archived
                offset = log.local_start
            data: bytes = await led.partition.directory.run_blocking(log.read, offset, READ_BYTES, log.log_end)
        except OffsetOutOfRange as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        except DamagedLog as damage:
            # Bytes that were truncated because another broker leads now are no damage: `_led` refuses.
            self._led(leadership).partition.report_damage(damage)
            raise
        except OutOfResources as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        return data

    async def append(self, leadership: PartitionLeadership, batch: bytes) -> None:
        with _as_refusals():
            await self._led(leadership).append_committed(batch, self._wall_clock())

    def submit(self, leadership: PartitionLeadership, batch: bytes) -> None:
        with _as_refusals():
            self._led(leadership).partition.append(batch, self._wall_clock())

    def begin_verification(
        self, leadership: PartitionLeadership, producer: ProducerIdAndEpoch, *, is_v2: bool
    ) -> VerificationGuard | None:
        role = self._led(leadership)
        header = check(encode_in_transaction([Record(0, self._wall_clock(), None, None)], producer))
        with _as_refusals():
            return role.begin_verification(header, is_v2=is_v2) if role.needs_verification(header) else None

    def append_in_transaction(
        self,
        leadership: PartitionLeadership,
        records: Sequence[Record],
        producer: ProducerIdAndEpoch,
        guard: VerificationGuard | None,
    ) -> Bounds:
        batch, partition = encode_in_transaction(records, producer), self._led(leadership).partition
        with _as_refusals():
            appended = partition.append(batch, self._wall_clock(), guard=guard, is_own=True)
        return Bounds(appended.base_offset, appended.end_offset)

    def _led(self, leadership: PartitionLeadership) -> LeaderRole:
        try:
            return self._replicas.led(self.name, leadership.partition, leadership.leader_epoch).leader
        except PartitionRefused as refused:
            raise _as_refused(refused) from refused

    def _create_topic(self) -> CreateTopic:
        image, settings = self._quorum.image, self._settings
        command = new_topic(
            self.name,
            image,
            broker_config(settings, image),
            self._rng,
            partitions=self._creation.partitions,
            replication_factor=self._creation.replication_factor,
            configs={
                "cleanup.policy": self._creation.cleanup_policy,
                "compression.type": "producer",
                "segment.bytes": str(self._creation.segment_bytes),
                "max.message.bytes": str(self._creation.batch_bytes_max),
            },
        )
        return at_once(command)

    def _not_created(self, reason: str) -> Refused:
        """Return the refusal. Log a new reason only: clients retry until there are enough brokers."""
        if reason != self._obstacle:
            self._obstacle = reason
            _events.warning("coordination.topic_not_created", topic=self.name, reason=reason)
        return Refused(ErrorCode.coordinator_not_available, reason)


def encode_in_transaction(records: Sequence[Record], producer: ProducerIdAndEpoch) -> bytes:
    """Return a batch that a coordinator writes in a producer's transaction, without sequence numbers."""
    producer_id, epoch = producer
    return encode(records, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL)


@contextmanager
def _as_refusals() -> Iterator[None]:
    """Turn the errors of an append into refusals."""
    try:
        yield
    except PartitionRefused as refused:
        raise _as_refused(refused) from refused
    except BatchTooLarge as error:
        raise Refused(ErrorCode.message_too_large, str(error)) from error
    except StaleProducerEpoch as error:
        raise Refused(ErrorCode.invalid_producer_epoch, str(error)) from error
    except InvalidTransactionState as error:
        raise Refused(ErrorCode.invalid_txn_state, str(error)) from error
    except (OutOfResources, DiskFailed, OutOfOrderSequence) as error:
        raise Refused(ErrorCode.coordinator_not_available, str(error)) from error


def _as_refused(refused: PartitionRefused) -> Refused:
    """Return the coordinator's refusal: clients look for another one, unless too few replicas are in sync here."""
    is_short = refused.reason is Refusal.NOT_ENOUGH_REPLICAS
    return Refused(ErrorCode.coordinator_not_available if is_short else ErrorCode.not_coordinator, str(refused))
