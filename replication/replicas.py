"""Replicas of this broker: lookup by topic and index, their log directories, and whether they can be served."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from cordwood.replication.log_directory import MOVES, LogDirectory
from cordwood.replication.log_repair import has_lost_records
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.log import Log
from cordwood.storage.log_copy import COMMITTED, commit, marked_end
from cordwood.storage.log_loader import open_log
from cordwood.storage.slices import Slice
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.replication.replica_moves import ReplicaMoves


class LeftOut(NamedTuple):
    """A log directory that could not be opened when the broker started."""

    path: str
    error: OSError


class Replicas:
    """Partitions of this broker by topic name and index, spread over its log directories."""

    def __init__(
        self, directories: Sequence[LogDirectory], context: PartitionContext, left_out: Sequence[LeftOut] = ()
    ) -> None:
        self.directories, self.left_out = directories, left_out
        self.moves: ReplicaMoves | None = None
        """Moves between the log directories; None with one directory."""
        self.unrecorded: dict[Partition, None] = {}
        """Replicas whose log directory the metadata may not have, where there are several."""
        self.is_cordoned: Callable[[LogDirectory], bool] = lambda _: False
        """Whether a log directory takes no new replicas, unless all are cordoned."""
        self.is_elsewhere: Callable[[str, int], bool] = lambda *_: False
        """Whether the metadata has a partition on other brokers only."""
        self.name_elsewhere: Callable[[UUID], str | None] = lambda _: None
        """Returns the name that the metadata has for a topic id."""
        self.preferred: dict[tuple[str, int], LogDirectory] = {}
        """Log directories for replicas that do not exist yet."""
        self.superseded: list[tuple[LogDirectory, Partition]] = []
        """Copies of replicas that have moved, found at start."""
        self._context = context
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[UUID, str] = {}
        self._offline: set[tuple[str, int]] = set()
        self._homes: dict[tuple[UUID, int], LogDirectory] = {}
        self._recovered: dict[tuple[UUID, int], Log | OSError | StorageError] = {}
        """Logs that were opened at start and belong to no partition yet, or the errors of opening them."""
        copies: dict[tuple[UUID, int], list[LogDirectory]] = {}
        for number, directory in enumerate(directories):
            directory.number = number
            for place in directory.found():
                copies.setdefault(place, []).append(directory)
        self._copies = {place: homes for place, homes in copies.items() if len(homes) > 1}
        """Log directories of partitions that are in several: one was away for a while, or a move was interrupted."""
        self._settled: set[tuple[UUID, int]] = set()
        """Those of them of which one copy is known to count: the others may be removed."""
        for place, homes in copies.items():
            self._homes[place] = homes[0] if len(homes) == 1 else _moved_or_newest(homes, place)
            self._homes[place].partition_count += 1

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(map(dict.values, self._by_topic.values()))

    def of_topics(self, is_wanted: Callable[[Partition], bool]) -> list[Partition]:
        """Return the partitions of the topics of which `is_wanted` holds for the first partition here."""
        held = self._by_topic.values()
        return [one for partitions in held if is_wanted(next(iter(partitions.values()))) for one in partitions.values()]

    def home_of(self, place: TopicIdPartition) -> LogDirectory | None:
        """Return the log directory of the partition; None if no directory has files of it."""
        return self._homes.get((place.topic_id, place.partition))

    def settle(self, recorded: Mapping[tuple[UUID, int], str]) -> None:
        """Choose the copies in the log directories that the metadata has. Call before any log is opened.

        A replica without files returns to its directory, too: the metadata counts on it there.
        """
        by_id = {directory.id: directory for directory in self.directories}
        for place, directory_id in recorded.items():
            home = by_id.get(directory_id)
            if home is not None and self._homes.get(place) is not home:
                self._rehome(place, home)
            if home in self._copies.get(place, ()):
                self._settled.add(place)

    def _rehome(self, place: tuple[UUID, int], home: LogDirectory) -> None:
        if place in self._homes:
            self._homes[place].partition_count -= 1
        self._homes[place] = home
        home.partition_count += 1

    def moved(self, partition: Partition, directory: LogDirectory) -> None:
        """Record that a replica has moved to another log directory."""
        partition.directory.uncheckpointed.pop(partition, None)
        self._rehome((partition.topic_id, partition.index), directory)
        partition.directory = directory
        directory.uncheckpointed[partition] = None

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
        key = place.topic_id, place.partition
        directory = self._home(place)
        recovered = self._recovered.pop(key, None)
        try:
            if recovered is None:
                recovered = self._open_log(directory, place, config, now_ms)
            # Of two copies, the log may have been opened in the other one.
            directory = self._homes[key]
            if not isinstance(recovered, Log):
                raise recovered
            log = recovered
            # The configuration may have changed since the log was opened.
            log.config = config
            log.discard = directory.discard
            mark = directory.flushed_offsets.get(place.topic_id, place.partition)
            partition = Partition(place, log, directory, self._context)
            if mark is None or mark.is_truncating or mark.end_offset < log.flushed_end:
                partition.note_flushed()
            if log.recovery_point < log.log_end:
                # What a crash left beyond the checkpoint is on disk now, and the synced mark does not say so (disk
                # rule 10).
                if any(map(has_lost_records, log.damage)):
                    # A checkpoint would hide that an unknown number of records is lost: they are repaired first.
                    directory.has_unsynced_marks = True
                else:
                    directory.uncheckpointed[partition] = None
        except (OSError, StorageError) as error:
            self._offline.add((place.topic, place.partition))
            raise PartitionRefused(Refusal.OFFLINE) from self._homes[key].write_failed(error)
        self._offline.discard((place.topic, place.partition))
        self._by_topic.setdefault(place.topic, {})[place.partition] = partition
        self._names[place.topic_id] = place.topic
        if self.has_several:
            self.unrecorded[partition] = None
            others = [other for other in self._copies.pop(key, ()) if other is not directory]
            self.superseded += [(other, partition) for other in others if key in self._settled]
        return log.damage

    @property
    def has_several(self) -> bool:
        """Whether the broker has several log directories."""
        return len(self.directories) + len(self.left_out) > 1

    def _open_log(self, directory: LogDirectory, place: TopicIdPartition, config: LogConfig, now_ms: int) -> Log:
        """Open the log of a partition: the one that counts, if a move to another directory was interrupted."""
        if not self.has_several:
            return self._log_in(directory, place, config, now_ms)
        key, path = (place.topic_id, place.partition), directory.partition_path(place.topic_id, place.partition)
        others = [other for other in self._copies.get(key, ()) if other is not directory]
        end = marked_end(directory.disk, path)
        if end is None:
            return self._log_in(directory, place, config, now_ms)
        self._settled.add(key)
        if end != COMMITTED and others:
            log = None
            with suppress(OSError, StorageError):
                log = self._log_in(directory, place, config, now_ms)
            if log is None or log.damage or log.log_end < end:
                # The former copy has everything that was flushed, and this one may not.
                if log is not None:
                    log.release()
                former = max(others, key=lambda other: _newest(other, key))
                self._rehome(key, former)
                # The move begins again.
                directory.disk.make_directories(directory.move_path(*key))
                return self._log_in(former, place, config, now_ms)
        else:
            log = self._log_in(directory, place, config, now_ms)
        commit(directory.disk, path, f"{directory.path}/{MOVES}")
        return log

    def _log_in(self, directory: LogDirectory, place: TopicIdPartition, config: LogConfig, now_ms: int) -> Log:
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

    def indexes(self, topic: str) -> Collection[int]:
        """Return the indexes of those replicas of a topic that `get` returns. Valid until the next change."""
        return self._by_topic.get(topic, {}).keys()

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

    def has_topic_id(self, topic_id: UUID) -> bool:
        """As `has_topic`, by the topic's id."""
        return topic_id in self._names

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, also of one without a replica here; None if there is no such topic."""
        return self._names.get(topic_id) or self.name_elsewhere(topic_id)

    def led(self, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
        """Return the partition if this broker leads it.

        `leader_epoch` is the newest one that the requester has seen (KIP-320).

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
            if (topic, index) in self._offline:
                raise PartitionRefused(Refusal.OFFLINE)
            raise PartitionRefused(Refusal.NOT_LEADER if self.is_elsewhere(topic, index) else Refusal.UNKNOWN)
        if partition.error is not None:
            raise PartitionRefused(Refusal.OFFLINE)
        if leader_epoch not in (NO_EPOCH, partition.leader_epoch):
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
        self.forget(partition, Refusal.NOT_LEADER)
        return partition

    def forget(self, partition: Partition, reason: Refusal = Refusal.DELETED) -> None:
        """End the role of a removed partition, for `reason`; `FileRemoval.remove` then deletes its files."""
        self._homes.pop((partition.topic_id, partition.index), None)
        self.unrecorded.pop(partition, None)
        partition.directory.partition_count -= 1
        partition.directory.uncheckpointed.pop(partition, None)
        partition.deleted(reason)
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
            wanted = self.preferred.pop((place.topic, place.partition), None)
            if wanted not in usable:
                free = [directory for directory in usable if not self.is_cordoned(directory)]
                wanted = min(free or usable, key=lambda directory: directory.partition_count)
            self._homes[key] = wanted
            self._homes[key].partition_count += 1
        return self._homes[key]


def _moved_or_newest(homes: Sequence[LogDirectory], place: tuple[UUID, int]) -> LogDirectory:
    """Return the directory to which a partition has moved; if none is marked, that of the newer copy."""
    for home in homes:
        if marked_end(home.disk, home.partition_path(*place)) is not None:
            return home
    return max(homes, key=lambda home: _newest(home, place))


def _newest(directory: LogDirectory, place: tuple[UUID, int]) -> tuple[int, int]:
    """Return leader epoch and flushed end of a directory's copy of a partition."""
    mark = directory.flushed_offsets.get(*place)
    return (NO_EPOCH, 0) if mark is None else (mark.leader_epoch, mark.end_offset)
