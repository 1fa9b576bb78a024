"""`__consumer_offsets` as a topic of this cluster: created when the first group comes, read and appended to here."""

import random
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.config import Settings
from cordwood.cluster.config_rows import broker_config
from cordwood.cluster.kafka.call import Refused
from cordwood.cluster.metadata.commands import CreateTopic
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.topics import CONSUMER_OFFSETS, new_topic
from cordwood.replication.partition import Partition, PartitionRefused, Refusal
from cordwood.replication.replicas import Replicas
from cordwood.storage.errors import BatchTooLarge, DamagedLog, DiskFailed, OffsetOutOfRange, OutOfResources

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 16 << 20
"""A group of thousands of members, with all their assignments, is one record."""

_CODE_UNIT = struct.Struct(">H")
_events = structlog.get_logger("groups")


class Bounds(NamedTuple):
    """The offsets between which a partition's records lie; half-open."""

    start: int
    end: int


class Leadership(NamedTuple):
    """One broker's time as the leader of one partition, which ends with the epoch."""

    partition: int
    leader_epoch: int


class OffsetsTopic(Protocol):
    """What the coordinator needs of the topic. All that may fail raises Refused with a coordinator's error code.

    That is NOT_COORDINATOR for whatever is asked under a leadership that is over, or whose end comes before the answer.
    """

    def partition_count(self) -> int:
        """0 while there is no such topic."""
        ...

    async def create(self) -> None:
        """Make the topic if there is none."""
        ...

    def leadership(self, partition: int) -> Leadership | None:
        """As which this broker coordinates the partition's groups; None if another one does, or nobody."""
        ...

    def bounds(self, leadership: Leadership) -> Bounds:
        """Everything that is in the partition, committed or not."""
        ...

    async def committed(self, leadership: Leadership, end: int) -> None:
        """Wait until everything below `end` is committed."""
        ...

    async def read(self, leadership: Leadership, offset: int) -> bytes:
        """Whole batches from the one with `offset` on, or b"" at the end. Also raises StorageError for damage."""
        ...

    async def append(self, leadership: Leadership, batch: bytes) -> None:
        """Append before the first await, then wait until the batch is committed.

        Where it is refused, nothing was appended, unless the leadership is over: then nobody knows.
        """
        ...

    def trim(self, leadership: Leadership, offset: int) -> None:
        """Delete all records below `offset`. A crash may bring them back."""
        ...


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition that keeps a group: by Java's String.hashCode, as in Kafka, so that tools find it."""
    number = 0
    for (unit,) in _CODE_UNIT.iter_unpack(group_id.encode("utf-16-be")):
        number = (31 * number + unit) & 0xFFFFFFFF
    if number & 0x80000000:
        # The one number without a positive counterpart becomes 0.
        number = (0x100000000 - number) & 0x7FFFFFFF
    return number % partition_count


class ReplicatedTopic:
    """The real one: its partitions are replicas like any others, the coordinator being where their leader is."""

    def __init__(
        self,
        quorum: Quorum,
        replicas: Replicas,
        settings: Settings,
        wall_clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._quorum, self._replicas, self._settings = quorum, replicas, settings
        self._wall_clock, self._rng = wall_clock, rng
        self._obstacle = ""

    def partition_count(self) -> int:
        topic = self._quorum.image.topics_by_name.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    async def create(self) -> None:
        if CONSUMER_OFFSETS in self._quorum.image.topics_by_name:
            return
        try:
            await self._quorum.propose(self._creation())
        except CommandRefused as refusal:
            # Someone else may have been faster.
            if CONSUMER_OFFSETS not in self._quorum.image.topics_by_name:
                raise self._not_created(refusal.message) from refusal
        except (Refused, QuorumFailed) as error:
            raise self._not_created(str(error)) from error

    def leadership(self, partition: int) -> Leadership | None:
        try:
            return Leadership(partition, self._replicas.led(CONSUMER_OFFSETS, partition).leader_epoch)
        except PartitionRefused:
            return None

    def bounds(self, leadership: Leadership) -> Bounds:
        log = self._led(leadership).log
        return Bounds(log.log_start, log.log_end)

    async def committed(self, leadership: Leadership, end: int) -> None:
        try:
            await self._led(leadership).committed(end)
        except PartitionRefused as refused:
            raise _as_refused(refused) from refused

    async def read(self, leadership: Leadership, offset: int) -> bytes:
        led = self._led(leadership)
        log = led.log
        try:
            data: bytes = await led.directory.run_blocking(log.read, offset, READ_BYTES, log.log_end)
        except OffsetOutOfRange as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        except DamagedLog as damage:
            # Bytes that went because another broker leads by now are no damage.
            self._led(leadership).damaged(damage)
            raise
        except OutOfResources as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        return data

    async def append(self, leadership: Leadership, batch: bytes) -> None:
        try:
            await self._led(leadership).append_committed(batch, self._wall_clock())
        except PartitionRefused as refused:
            raise _as_refused(refused) from refused
        except BatchTooLarge as error:
            raise Refused(ErrorCode.message_too_large, str(error)) from error
        except (OutOfResources, DiskFailed) as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error

    def trim(self, leadership: Leadership, offset: int) -> None:
        self._led(leadership).delete_records(offset)

    def _led(self, leadership: Leadership) -> Partition:
        try:
            return self._replicas.led(CONSUMER_OFFSETS, leadership.partition, leadership.leader_epoch)
        except PartitionRefused as refused:
            raise _as_refused(refused) from refused

    def _creation(self) -> CreateTopic:
        image, settings = self._quorum.image, self._settings
        return new_topic(
            CONSUMER_OFFSETS,
            image,
            broker_config(settings, image),
            self._rng,
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=settings.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
                "max.message.bytes": str(RECORD_BYTES_MAX),
            },
        )

    def _not_created(self, reason: str) -> Refused:
        """Clients ask again and again, until there are brokers enough: the log has each reason once."""
        if reason != self._obstacle:
            self._obstacle = reason
            _events.warning("groups.topic_not_created", topic=CONSUMER_OFFSETS, reason=reason)
        return Refused(ErrorCode.coordinator_not_available, reason)


def _as_refused(refused: PartitionRefused) -> Refused:
    """Members are to look for another coordinator, unless this one only has too few replicas in sync for now."""
    is_short = refused.reason is Refusal.NOT_ENOUGH_REPLICAS
    return Refused(ErrorCode.coordinator_not_available if is_short else ErrorCode.not_coordinator, str(refused))
