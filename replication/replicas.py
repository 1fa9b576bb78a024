"""Replicas of this broker: lookup by topic and index, their log directories, and whether they can be served."""

from collections.abc import Iterator, Sequence
from itertools import chain
from uuid import UUID

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.log import Log
from cordwood.storage.log_loader import open_log
from cordwood.storage.slices import Slice
from cordwood.storage.types import NO_EPOCH


class Replicas:
    """Partitions of this broker by topic name and index, spread over its log directories."""

    def __init__(self, directories: Sequence[LogDirectory], context: PartitionContext) -> None:
        self.directories = directories
        self._context = context
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[UUID, str] = {}
        self._offline: set[tuple[str, int]] = set()
        self._homes: dict[tuple[UUID, int], LogDirectory] = {}
        self._recovered: dict[tuple[UUID, int], Log | OSError | StorageError] = {}
        """Logs that were opened at start and belong to no partition yet, or the errors of opening them."""
        for number, directory in enumerate(directories):
            directory.number = number
            for place in directory.found():
                # The partition is on two disks, and one was away for a while: the newer copy counts.
                if place not in self._homes or _newest(directory, place) > _newest(self._homes[place], place):
                    self._homes[place] = directory
        for home in self._homes.values():
            home.partition_count += 1

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(map(dict.values, self._by_topic.values()))

    def home_of(self, place: TopicIdPartition) -> LogDirectory | None:
        """Return the log directory of the partition; None if no directory has files of it."""
        return self._homes.get((place.topic_id, place.partition))

    def recover(self, place: TopicIdPartition, config: LogConfig, now_ms: int) -> None:
        """Open the log of a partition that has a log directory, in a thread, for `open` to take it."""
        directory = self._homes[place.topic_id, place.partition]
        try:
            recovered: Log | OSError | StorageError = self._open_log(directory, place, config, now_ms)
        except (OSError, StorageError) as error:
            recovered = error
        self._recovered[place.topic_id, place.partition] = recovered

    def release_recovered(self) -> None:
        """Release logs that were opened at start and do not belong to this broker any more."""
        while self._recovered:
            _, recovered = self._recovered.popitem()
            if isinstance(recovered, Log):
                recovered.release()

    def open(self, place: TopicIdPartition, config: LogConfig, now_ms: int) -> list[DamagedLog]:
        """Hold a partition, with its log recovered. Return the damage found in the log.

        An empty partition gets its directory with its first batch. Blocks on the disk, unless the log is open already.
        Raises PartitionRefused.
        """
        directory = self._home(place)
        recovered = self._recovered.pop((place.topic_id, place.partition), None)
        try:
            if recovered is None:
                recovered = self._open_log(directory, place, config, now_ms)
            if not isinstance(recovered, Log):
                raise recovered
            log = recovered
            # The configuration may have changed since the log was opened.
            log.config = config
            log.discard = directory.discard
            mark = directory.flushed_offsets.get(place.topic_id, place.partition)
            partition = Partition(place, log, directory, self._context)
            if mark is None or mark.end_offset < log.flushed_end:
                partition.note_flushed()
        except (OSError, StorageError) as error:
            self._offline.add((place.topic, place.partition))
            raise PartitionRefused(Refusal.OFFLINE) from directory.write_failed(error)
        self._offline.discard((place.topic, place.partition))
        self._by_topic.setdefault(place.topic, {})[place.partition] = partition
        self._names[place.topic_id] = place.topic
        return log.damage

    def _open_log(self, directory: LogDirectory, place: TopicIdPartition, config: LogConfig, now_ms: int) -> Log:
        path = directory.partition_path(place.topic_id, place.partition)
        mark = directory.flushed_offsets.get(place.topic_id, place.partition)
        return open_log(directory.disk, path, config, mark, now_ms, self._context.open_segments)

    async def read_piece(self, chunk: Slice) -> Bytes:
        """Read the next piece of a slice in a thread of its own log directory. Raises as `Slice.next_piece`."""
        path = chunk.segment.path
        homes = [directory for directory in self.directories if path.startswith(f"{directory.path}/")]
        piece: Bytes = await max(homes, key=lambda home: len(home.path)).run_blocking(chunk.next_piece)
        return piece

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def has_topic(self, topic: str) -> bool:
        """Return whether this broker has a replica of any partition of the topic."""
        return topic in self._by_topic

    def with_id(self, topic_id: UUID, index: int) -> Partition | None:
        """As `get`, by the topic's id."""
        topic = self._names.get(topic_id)
        return None if topic is None else self.get(topic, index)

    def not_opened(self) -> list[tuple[str, int]]:
        """Return this broker's partitions that could not be opened, by topic name and index."""
        return sorted(self._offline)

    def is_disk_lost(self, topic_id: UUID, index: int) -> bool:
        """Return whether a partition's log directory is offline, rather than only full."""
        home = self._homes.get((topic_id, index))
        return home is None or home.is_offline

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def led(self, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
        """Return the partition if this broker leads it. The requester knows `leader_epoch` (KIP-320).

        Raises PartitionRefused.
        """
        partition = self.readable(topic, index, leader_epoch)
        if partition.leading is None:
            raise PartitionRefused(Refusal.NOT_LEADER)
        return partition

    def readable(self, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
        """Return the partition if this broker holds it: a follower serves committed records, too (KIP-392).

        Raises PartitionRefused.
        """
        partitions = self._by_topic.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise PartitionRefused(Refusal.OFFLINE if (topic, index) in self._offline else Refusal.UNKNOWN)
        if partition.error is not None:
            raise PartitionRefused(Refusal.OFFLINE)
        if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:
            is_old = leader_epoch < partition.leader_epoch
            raise PartitionRefused(Refusal.FENCED_EPOCH if is_old else Refusal.UNKNOWN_EPOCH)
        return partition

    def remove(self, topic: str) -> list[Partition]:
        """Remove a deleted topic's partitions immediately. `forget` then ends their roles one by one."""
        removed = list(self._by_topic.pop(topic, {}).values())
        for partition in removed:
            partition.is_deleted = True
        if removed:
            self._names.pop(removed[0].topic_id, None)
        self._offline = {place for place in self._offline if place[0] != topic}
        return removed

    def remove_one(self, topic: str, index: int) -> Partition | None:
        """Remove and return a partition that has been moved to other brokers. None if it was not here."""
        self._offline.discard((topic, index))
        partition = self.get(topic, index)
        if partition is None:
            return None
        held = self._by_topic[topic]
        del held[index]
        if not held:
            del self._by_topic[topic]
            self._names.pop(partition.topic_id, None)
        self.forget(partition)
        return partition

    def forget(self, partition: Partition) -> None:
        """End the role of a removed partition; `LogMaintenance.remove` then deletes its files."""
        self._homes.pop((partition.topic_id, partition.index), None)
        partition.directory.partition_count -= 1
        partition.directory.uncheckpointed.pop(partition, None)
        partition.deleted()
        try:
            partition.directory.flushed_offsets.forget(partition.topic_id, partition.index)
        except OSError as error:
            partition.directory.write_failed(error)

    def found(self) -> list[tuple[LogDirectory, UUID, int]]:
        """Return all partitions with files on a disk here, held or not."""
        return [(directory, topic_id, index) for (topic_id, index), directory in self._homes.items()]

    def forget_home(self, topic_id: UUID, index: int) -> None:
        """Remove an orphan whose files have been deleted."""
        directory = self._homes.pop((topic_id, index), None)
        if directory is not None:
            directory.flushed_offsets.forget(topic_id, index)
            directory.partition_count -= 1

    def go_offline(self, directory: LogDirectory) -> None:
        """Take the partitions of a failed log directory offline, and refuse their waiters."""
        assert directory.error is not None, "it says why"
        for partition in self:
            if partition.directory is directory:
                partition.go_offline(directory.error)

    def _home(self, place: TopicIdPartition) -> LogDirectory:
        """Return the partition's log directory, or else the online one with the fewest partitions."""
        key = (place.topic_id, place.partition)
        if key not in self._homes:
            usable = [directory for directory in self.directories if not directory.is_offline]
            if not usable:
                self._offline.add((place.topic, place.partition))
                raise PartitionRefused(Refusal.OFFLINE)
            self._homes[key] = min(usable, key=lambda directory: directory.partition_count)
            self._homes[key].partition_count += 1
        return self._homes[key]


def _newest(directory: LogDirectory, place: tuple[UUID, int]) -> tuple[int, int]:
    """Return leader epoch and flushed end of a directory's copy of a partition."""
    mark = directory.flushed_offsets.get(*place)
    return (NO_EPOCH, 0) if mark is None else (mark.leader_epoch, mark.end_offset)
