"""One of a broker's log directories: its partitions' flush marks, and whether it can still be trusted."""

from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import UUID

import structlog

from cordwood.replication.flusher import Flusher
from cordwood.replication.run_mark import RunMark
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DiskFailed, DiskFull, StorageError, change_failed
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.log import Log

TOPICS = "topics"
MARKS_FILE = "flushed"
STAGING = "repair"
"""Segments that are being put together. What is there when a broker starts was never finished."""
METADATA = "metadata"
"""Where the first log directory of a broker keeps what the cluster has agreed on."""

_events = structlog.get_logger("log_directory")


class Saveable(Protocol):
    """A replica whose log has a state to checkpoint."""

    log: Log


class LogDirectory:
    """A directory that holds `topics/<topic id>/<partition>/`. After one failed write or sync it is offline for good.

    A failed fsync is never retried (disk rule 3): what it covered may be lost although a later one succeeds.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        failed: Callable[["LogDirectory"], None],
        flusher: Flusher,
        run_blocking: RunBlocking,
        boot_id: str = "",
    ) -> None:
        """`boot_id` tells one boot of the machine from another.

        `flusher` and `run_blocking` are this directory's own: a disk that hangs holds up nothing of the others.
        Raises OSError where the directory cannot be made or its marks cannot be read.
        """
        for changed in disk.make_directories(f"{path}/{TOPICS}"):
            sync_directory(disk, changed)
        if disk.exists(f"{path}/{STAGING}"):
            disk.remove_tree(f"{path}/{STAGING}")
        self.disk, self.path = disk, path
        self.flusher, self.run_blocking = flusher, run_blocking
        self.flushed_offsets = FlushedOffsets(disk.open(f"{path}/{MARKS_FILE}", create=True))
        sync_directory(disk, path)
        self.run_mark = RunMark(disk, path, boot_id, is_new=not disk.list_directory(f"{path}/{TOPICS}"))
        self.error: OSError | StorageError | None = None
        self.partition_count = self.number = 0
        self.unsaved: dict[Saveable, None] = {}
        """Replicas that have been flushed since their last checkpoint."""
        self._free_bytes_at_refusal: int | None = None
        self._failed = failed

    @property
    def is_offline(self) -> bool:
        return self.error is not None

    def fail(self, error: OSError | StorageError) -> None:
        """Take the directory offline. Only the first reason is told."""
        if self.error is None:
            self.error = error
            self._failed(self)

    def declared(self) -> None:
        """The others know which replicas here may lack what was only in memory. Blocks."""
        self._note(self.run_mark.declared)

    def stopped(self) -> None:
        """All logs here are on disk, and nothing more is written. Blocks."""
        self._note(self.run_mark.stopped)

    def _note(self, note: Callable[[], None]) -> None:
        if not self.is_offline:
            try:
                note()
            except OSError as error:
                self.write_failed(error)

    def write_failed(self, error: OSError | StorageError) -> StorageError:
        """Return the kind of a failed change of the directory's files, and take the directory offline if it is broken.

        The one place that decides so. OutOfResources is for trying again later.
        """
        failure = change_failed(error) if isinstance(error, OSError) else error
        if isinstance(failure, DiskFull):
            self._free_bytes_at_refusal = self.free_bytes()
            return DiskFull(f"{self.path} has no room")
        if isinstance(failure, DiskFailed):
            self.fail(error)
        return failure

    def free_bytes(self) -> int | None:
        """What is left on the file system; None where it does not say."""
        try:
            return self.disk.free_bytes(self.path)
        except OSError:
            return None

    def refuses_with(self, free_bytes: int) -> bool:
        """Whether a write was refused when there was no less free than this: the next one like it would be, too."""
        return self._free_bytes_at_refusal is not None and free_bytes <= self._free_bytes_at_refusal

    def topic_path(self, topic_id: UUID) -> str:
        return f"{self.path}/{TOPICS}/{topic_id}"

    def partition_path(self, topic_id: UUID, partition: int) -> str:
        # Topic ids, never names: nothing that a client sent becomes a path.
        return f"{self.topic_path(topic_id)}/{partition}"

    def is_vacant(self, topic_id: UUID) -> bool:
        """Whether nothing of the topic is left here but its directory."""
        path = self.topic_path(topic_id)
        return self.disk.exists(path) and not self.disk.list_directory(path)

    def found(self) -> list[tuple[UUID, int]]:
        """The partitions that have something here. What has another name is not ours: it is logged, and left alone."""
        places = []
        for topic, partition in names_in(self.disk, f"{self.path}/{TOPICS}"):
            place = place_of(topic, partition)
            if place is None:
                _events.warning("log_directory.stray", path=f"{self.path}/{TOPICS}/{topic}/{partition}".rstrip("/"))
            else:
                places.append(place)
        return places


def names_in(disk: Disk, topics: str) -> Iterator[tuple[str, str]]:
    """The names of topics' directories, each with those of its partitions; of what is no directory, alone."""
    for topic in disk.list_directory(topics):
        try:
            partitions = disk.list_directory(f"{topics}/{topic}")
        except NotADirectoryError:
            partitions = [""]
        for partition in partitions:
            yield topic, partition


def place_of(topic: str, partition: str) -> tuple[UUID, int] | None:
    """The partition whose directory has these names; None where `LogDirectory` gives no partition such names."""
    try:
        place = UUID(topic), int(partition)
    except ValueError:
        return None
    return place if (str(place[0]), str(place[1])) == (topic, partition) else None
