"""`__consumer_offsets` as a topic of this cluster: created when the first group comes, read and appended to here."""

import random
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import Settings
from cordwood.cluster.config_rows import broker_config
from cordwood.cluster.kafka.call import Refused
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed
from cordwood.cluster.topics import CONSUMER_OFFSETS, new_topic
from cordwood.replication.housekeeping import RunBlocking
from cordwood.replication.partition import Partition, PartitionRefused
from cordwood.replication.replicas import Replicas
from cordwood.storage.errors import BatchTooLarge, DiskFailed, DiskFull, OffsetOutOfRange

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 16 << 20
"""A group of thousands of members, with all their assignments, is one record."""

_CODE_UNIT = struct.Struct(">H")


class Bounds(NamedTuple):
    """The offsets between which a partition's records lie; half-open."""

    start: int
    end: int


class OffsetsTopic(Protocol):
    """What the coordinator needs of the topic. All that may fail raises Refused with a coordinator's error code."""

    def partition_count(self) -> int:
        """0 while there is no such topic."""
        ...

    async def create(self) -> None:
        """Make the topic if there is none."""
        ...

    def is_led(self, partition: int) -> bool:
        """Whether this broker leads the partition, and so coordinates its groups."""
        ...

    def bounds(self, partition: int) -> Bounds:
        """Everything that is in the partition."""
        ...

    async def read(self, partition: int, offset: int) -> bytes:
        """Whole batches from the one with `offset` on, or b"" at the end. Also raises StorageError for damage."""
        ...

    async def append(self, partition: int, batch: bytes) -> None:
        """Append before the first await, then wait until the batch is committed."""
        ...

    def trim(self, partition: int, offset: int) -> None:
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
        run_blocking: RunBlocking,
        wall_clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._quorum, self._replicas, self._settings = quorum, replicas, settings
        self._run_blocking, self._wall_clock, self._rng = run_blocking, wall_clock, rng

    def partition_count(self) -> int:
        topic = self._quorum.image.topics_by_name.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    async def create(self) -> None:
        image, settings = self._quorum.image, self._settings
        if CONSUMER_OFFSETS in image.topics_by_name:
            return
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
            "max.message.bytes": str(RECORD_BYTES_MAX),
        }
        try:
            command = new_topic(
                CONSUMER_OFFSETS,
                image,
                broker_config(settings, image),
                self._rng,
                partitions=settings.offsets_topic_num_partitions,
                replication_factor=settings.offsets_topic_replication_factor,
                configs=configs,
            )
            await self._quorum.propose(command)
        except CommandRefused as refusal:
            # Someone else may have been faster.
            if CONSUMER_OFFSETS not in self._quorum.image.topics_by_name:
                raise Refused(ErrorCode.coordinator_not_available, refusal.message) from refusal
        except Refused as refusal:
            raise Refused(ErrorCode.coordinator_not_available, refusal.message) from refusal
        except QuorumFailed as failure:
            raise Refused(ErrorCode.coordinator_not_available, str(failure)) from failure

    def is_led(self, partition: int) -> bool:
        return self._replicas.get(CONSUMER_OFFSETS, partition) is not None

    def bounds(self, partition: int) -> Bounds:
        log = self._led(partition).log
        return Bounds(log.log_start, log.log_end)

    async def read(self, partition: int, offset: int) -> bytes:
        log = self._led(partition).log
        try:
            data: bytes = await self._run_blocking(log.read, offset, READ_BYTES, log.log_end)
        except OffsetOutOfRange as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error
        except OSError as error:
            raise DiskFailed(str(error)) from error
        return data

    async def append(self, partition: int, batch: bytes) -> None:
        try:
            await self._led(partition).append_committed(batch, self._wall_clock())
        except PartitionRefused as refused:
            raise Refused(ErrorCode.not_coordinator, str(refused)) from refused
        except BatchTooLarge as error:
            raise Refused(ErrorCode.message_too_large, str(error)) from error
        except (DiskFull, DiskFailed) as error:
            raise Refused(ErrorCode.coordinator_not_available, str(error)) from error

    def trim(self, partition: int, offset: int) -> None:
        self._led(partition).log.raise_log_start(offset)

    def _led(self, partition: int) -> Partition:
        try:
            return self._replicas.led(CONSUMER_OFFSETS, partition)
        except PartitionRefused as refused:
            raise Refused(ErrorCode.not_coordinator, str(refused)) from refused
