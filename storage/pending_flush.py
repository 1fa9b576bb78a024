"""Unsynced files and directories of a log: files with new bytes, directories with new entries."""

from typing import NamedTuple

from cordwood.storage.disk import Disk, File, Syncable, open_directories
from cordwood.storage.segment import Segment


class PendingFlush(NamedTuple):
    """Files and directories to sync so that everything below `end_offset` is durable, and its place in the log.

    The owner syncs the files and the directories. `Log.flushed` and `Log.flush_failed` close the directories.
    """

    files: list[File]
    directories: list[Syncable]
    end_offset: int
    segment: Segment | None
    position: int

    def close_directories(self) -> None:
        for directory in self.directories:
            directory.close()


class UnsyncedEntries:
    """Files and directories collected append by append, and taken together."""

    __slots__ = ("_directories", "_removals_of", "files")

    def __init__(self) -> None:
        self.files: dict[str, File] | None = None
        """Files with new bytes, by path; None if there are none, as in most of many logs."""
        self._directories: tuple[str, ...] = ()
        """By path: a directory is opened only for its sync."""
        self._removals_of: str | None = None

    def changed(self, *directories: str) -> None:
        """Record directories with new entries."""
        self._directories = tuple(dict.fromkeys((*self._directories, *directories)))

    def wrote(self, path: str, file: File) -> None:
        """Record a file with new bytes."""
        if self.files is None:
            self.files = {}
        self.files[path] = file

    def removed(self, path: str) -> None:
        """Forget a deleted file."""
        if self.files is not None:
            self.files.pop(path, None)

    def may_lack_removals(self, directory: str) -> None:
        """Sync this directory with the first write: an earlier process may have removed files without a sync."""
        self._removals_of = directory

    def take(self, disk: Disk) -> tuple[list[File], list[Syncable]]:
        """Take all files and directories. Raises OSError: then nothing is taken, and the next call may."""
        if self._removals_of is not None and self.files:
            self.changed(self._removals_of)
            self._removals_of = None
        directories = open_directories(disk, self._directories) if self._directories else []
        # Nothing fails from here on: everything that leaves the two collections is synced.
        files = [] if self.files is None else list(self.files.values())
        self.clear()
        return files, directories

    def clear(self) -> None:
        self.files, self._directories = None, ()
