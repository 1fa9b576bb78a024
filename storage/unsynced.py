"""What of a log is to be synced: files with new bytes, and directories with new entries."""

from typing import NamedTuple

from cordwood.storage.disk import Disk, File, Syncable, open_directories
from cordwood.storage.segment import Segment


class Unsynced(NamedTuple):
    """What to sync so that everything below `end_offset` is sure, and where in the log that is.

    Whoever has it syncs the files and the directories, and closes the directories.
    """

    files: list[File]
    directories: list[Syncable]
    end_offset: int
    segment: Segment | None
    position: int


class UnsyncedEntries:
    """Collected append by append, and taken all at once."""

    __slots__ = ("_directories", "_removals_of", "files")

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        """With new bytes, by their paths."""
        self._directories: dict[str, None] = {}
        """By their paths: they are opened for the sync alone."""
        self._removals_of: str | None = None

    def changed(self, *directories: str) -> None:
        """These have new entries."""
        self._directories.update(dict.fromkeys(directories))

    def may_lack_removals(self, directory: str) -> None:
        """An earlier process may have died between removing files and syncing that: sync it with the first write."""
        self._removals_of = directory

    def take(self, disk: Disk) -> tuple[list[File], list[Syncable]]:
        """All of it. Raises OSError: then all of it is still here, to be taken next time."""
        if self._removals_of is not None and self.files:
            self.changed(self._removals_of)
            self._removals_of = None
        directories = open_directories(disk, self._directories) if self._directories else []
        # From here on nothing fails: what leaves the two collections is synced.
        files = list(self.files.values())
        self.files, self._directories = {}, {}
        return files, directories

    def clear(self) -> None:
        self.files, self._directories = {}, {}
