"""Log directory of a broker: its disk's state (online or offline), flushed offsets, run mark, partition paths."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from cordwood.replication.flusher import Flusher
from cordwood.replication.run_mark import RunMark
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DiskFailed, DiskFull, StorageError, change_failed
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.segment import ALLOCATE_AT_MOST

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

TOPICS = "topics"
MARKS_FILE = "flushed"
MOVES = "moves"
"""Unfinished copies of replicas that move here. Those found when a broker starts are begun again."""
STAGING = "repair"
"""Segments that are being rebuilt, and files and trees that are to be removed. The next start sets all of it aside."""
ARCHIVE_CACHE = "archive-cache"
"""Records that were read from the archive. The cache is empty when a broker starts."""
LEFTOVERS = "leftovers"
"""What earlier runs have left in the directories above. `FileRemoval` removes it while the broker runs."""
METADATA = "metadata"
"""Where the first log directory of a broker keeps the cluster's metadata."""
PROBE = f"{STAGING}/room"
"""A file that is made and removed to find out whether a directory that has refused a write has room again."""
PROBE_BYTES = ALLOCATE_AT_MOST
"""Room for the next preallocation of any segment."""

_events = structlog.get_logger("log_directory")


class LogDirectory:
    """A directory with `topics/<topic id>/<partition>/`. A failed write or sync takes it offline until a restart.

    A failed fsync is never retried (disk rule 3): the covered data may be lost although a later one succeeds. A lack of
    resources is no such failure.
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
        """Make and open the directory. `boot_id` identifies one boot of the machine.

        `flusher` and `run_blocking` are this directory's own: a hung disk does not delay the other directories. Raises
        OSError if the directory cannot be made or its flushed offsets cannot be read.
        """
        for changed in disk.make_directories(f"{path}/{TOPICS}"):
            sync_directory(disk, changed)
        self.disk, self.path = disk, path
        for left in (STAGING, ARCHIVE_CACHE):
            if disk.exists(f"{path}/{left}"):
                self._clear(f"{path}/{left}")
        self.flusher, self.run_blocking = flusher, run_blocking
        self.flushed_offsets = FlushedOffsets(disk.open(f"{path}/{MARKS_FILE}", create=True))
        sync_directory(disk, path)
        self.run_mark = RunMark(disk, path, boot_id, is_new=not disk.list_directory(f"{path}/{TOPICS}"))
        self.error: OSError | StorageError | None = None
        self.partition_count = self.number = 0
        self.id = ""
        """Its directory id (KIP-858), once it is claimed."""
        self.uncheckpointed: dict[Partition, None] = {}
        """Replicas that have been flushed since their last checkpoint."""
        self.has_unsynced_marks = False
        """Whether flush marks have to be synced: of logs that were checkpointed, or that have lost records."""
        self._discarded: list[str] = []
        self._discard_count = 0
        self.free_bytes_at_refusal: int | None = None
        """Free bytes when a write was refused for lack of room; None once an append or `look_for_room` succeeds."""
        self._failed = failed
        self.discard: Callable[[str], None] = self._discard
        """Renames a log file into the staging directory. One method object, which all logs here share."""

    @property
    def is_offline(self) -> bool:
        return self.error is not None

    def fail(self, error: OSError | StorageError) -> None:
        """Take the directory offline. Only the first error is reported."""
        if self.error is None:
            self.error = error
            self._failed(self)

    def set_aside(self, path: str) -> None:
        """Rename a file or a tree, however large, to where `FileRemoval` removes it. Raises OSError.

        Files that are made at `path` later are not touched.
        """
        self.disk.make_directories(f"{self.path}/{LEFTOVERS}")
        names = set(self.disk.list_directory(f"{self.path}/{LEFTOVERS}"))
        free = next(name for name in map(str, count(1)) if name not in names)
        self.disk.rename(path, f"{self.path}/{LEFTOVERS}/{free}")

    def _clear(self, path: str) -> None:
        try:
            self.set_aside(path)
        except OSError as error:
            if not isinstance(change_failed(error), DiskFull):
                raise
            self.disk.remove_tree(path)

    def leftovers(self) -> list[str]:
        """Return the paths of what was set aside, by this start or an earlier one. Raises OSError."""
        place = f"{self.path}/{LEFTOVERS}"
        return [f"{place}/{name}" for name in self.disk.list_directory(place)] if self.disk.exists(place) else []

    def stage_removal(self, path: str) -> str:
        """Rename a file or a tree into the staging directory, and return its path there. Raises OSError.

        Unlinking blocks until the blocks are freed: a thread does it later, or the next run.
        """
        self.disk.make_directories(f"{self.path}/{STAGING}")
        self._discard_count += 1
        place = f"{self.path}/{STAGING}/discarded-{self._discard_count}"
        self.disk.rename(path, place)
        return place

    def _discard(self, path: str) -> None:
        """Rename a log file into the staging directory, for `remove_discarded`. Raises OSError."""
        self._discarded.append(self.stage_removal(path))

    async def remove_discarded(self) -> None:
        """Unlink the discarded files in a thread. The next run removes those for which that fails."""
        discarded, self._discarded = self._discarded, []
        if discarded:
            try:
                await self.run_blocking(_remove_all, self.disk, discarded)
            except Exception as error:
                # The thread did not begin, for example for lack of threads. The truncations, which are made, go on.
                _events.warning("files.not_removed", path=self.path, error=str(error))

    def declared(self) -> None:
        """Record that the other brokers know which replicas here may lack records that were only in memory. Blocks."""
        self._note(self.run_mark.declared)

    def stopped(self) -> None:
        """Record that all logs here are on disk, and nothing more is written. Blocks."""
        self._note(self.run_mark.stopped)

    def _note(self, note: Callable[[], None]) -> None:
        if not self.is_offline:
            try:
                note()
            except OSError as error:
                self.write_failed(error)

    def write_failed(self, error: OSError | StorageError) -> StorageError:
        """Return the kind of a failed change of the directory's files, and take the directory offline if it is broken.

        Only this method decides that. OutOfResources may be retried later.
        """
        failure = change_failed(error) if isinstance(error, OSError) else error
        if isinstance(failure, DiskFull):
            self.free_bytes_at_refusal = self.free_bytes()
            return DiskFull(f"{self.path} has no room")
        if isinstance(failure, DiskFailed):
            self.fail(error)
        return failure

    def report_not_done(self, what: str, error: OSError | StorageError) -> None:
        """Log a failed background task, and take the directory offline if it is broken."""
        failure = self.write_failed(error)
        log = _events.error if isinstance(failure, DiskFailed) else _events.warning
        log("housekeeping.not_done", what=what, directory=self.path, error=str(failure))

    def free_bytes(self) -> int | None:
        """Return the free bytes of the file system; None if they are unknown."""
        try:
            return self.disk.free_bytes(self.path)
        except OSError:
            return None

    async def look_for_room(self) -> None:
        """Record that the directory has room again if a file as large as a segment needs can be made. Raises OSError.

        Free space alone does not tell: a quota is not in it, and room may have been made before it was asked for.
        """
        if self.free_bytes_at_refusal is not None and not self.is_offline:
            await self.run_blocking(self._probe)
            self.free_bytes_at_refusal = None

    def _probe(self) -> None:
        path = f"{self.path}/{PROBE}"
        self.disk.make_directories(f"{self.path}/{STAGING}")
        file = self.disk.open(path, create=True)
        try:
            file.preallocate(0, PROBE_BYTES)
        finally:
            file.close()
            self.disk.remove(path)

    def refuses_with(self, free_bytes: int) -> bool:
        """Return whether a write was refused with this much free space or more: the next one would be refused, too."""
        return self.free_bytes_at_refusal is not None and free_bytes <= self.free_bytes_at_refusal

    def topic_path(self, topic_id: UUID) -> str:
        return f"{self.path}/{TOPICS}/{topic_id}"

    def partition_path(self, topic_id: UUID, partition: int) -> str:
        # Topic ids, never names: nothing that a client sent becomes a path (disk rule 6).
        return f"{self.topic_path(topic_id)}/{partition}"

    def move_path(self, topic_id: UUID, partition: int) -> str:
        """Return the place of an unfinished copy of a replica that moves here."""
        return f"{self.path}/{MOVES}/{topic_id}-{partition}"

    def unfinished_moves(self) -> list[tuple[UUID, int]]:
        """Return the replicas of which an unfinished copy is here."""
        path = f"{self.path}/{MOVES}"
        names = self.disk.list_directory(path) if self.disk.exists(path) else []
        places = (place_of(topic, partition) for topic, _, partition in (name.rpartition("-") for name in names))
        return [place for place in places if place is not None]

    def is_vacant(self, topic_id: UUID) -> bool:
        """Return whether only the topic's empty directory is left here."""
        path = self.topic_path(topic_id)
        return self.disk.exists(path) and not self.disk.list_directory(path)

    def sync_topic(self, topic_id: UUID) -> None:
        """Flush the removal of a partition's directory, in a thread. Raises OSError.

        The topic's directory may have been removed meanwhile, with the last orphan in it.
        """
        try:
            sync_directory(self.disk, self.topic_path(topic_id))
        except FileNotFoundError:
            sync_directory(self.disk, f"{self.path}/{TOPICS}")

    def found(self) -> list[tuple[UUID, int]]:
        """Return the partitions with files here. Directories of other names are logged, and left unchanged."""
        places = []
        for topic, partition in names_in(self.disk, f"{self.path}/{TOPICS}"):
            place = place_of(topic, partition)
            if place is None:
                _events.warning("log_directory.stray", path=f"{self.path}/{TOPICS}/{topic}/{partition}".rstrip("/"))
            else:
                places.append(place)
        return places


def _remove_all(disk: Disk, paths: Sequence[str]) -> None:
    """Remove the files. Runs in a thread."""
    for path in paths:
        try:
            disk.remove(path)
        except OSError as error:
            _events.warning("files.not_removed", path=path, error=str(error))


def names_in(disk: Disk, topics: str) -> Iterator[tuple[str, str]]:
    """Yield the names of topic directories, each with the names of its partitions; an empty one if it is a file."""
    for topic in disk.list_directory(topics):
        try:
            partitions = disk.list_directory(f"{topics}/{topic}")
        except NotADirectoryError:
            partitions = [""]
        for partition in partitions:
            yield topic, partition


def place_of(topic: str, partition: str) -> tuple[UUID, int] | None:
    """Return the partition whose directory has these names; None if `LogDirectory` never gives these names."""
    try:
        place = UUID(topic), int(partition)
    except ValueError:
        return None
    return place if (str(place[0]), str(place[1])) == (topic, partition) else None
