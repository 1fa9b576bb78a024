"""A mirrored disk: every change to a directory is made in two copies, each complete by itself."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Generic, TypeVar

from cordwood.storage.disk import Bytes, Disk, File, Syncable, open_directories
from cordwood.storage.errors import SyncFailed

COPY = "copy"

_Kind = TypeVar("_Kind", bound=Syncable)


def copy_of(directory: str) -> str:
    """Return the directory of the second copy."""
    return f"{directory}/{COPY}"


class CopiesDiffer(SyncFailed):
    """A change that was made in the first copy alone. Final whatever the errno, like a failed sync."""


class MirroredDisk:
    """A Disk for `directory`. Reads use the first copy; changes are made in the first copy, then in the second.

    Both copies go through the same states in the same order, and both are synced before the next step. So each copy is
    at any moment a valid single copy, and both have everything that was synced.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory

    def open(self, path: str, *, create: bool = False) -> File:
        with ExitStack() as opened:
            first = opened.enter_context(closing(self._disk.open(path, create=create)))
            both = _MirroredFile(first, self._disk.open(self._second(path), create=create))
            opened.pop_all()
        return both

    def open_directory(self, path: str) -> Syncable:
        return _Both(*open_directories(self._disk, (path, self._second(path))))

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def make_directories(self, path: str) -> list[str]:
        return self._disk.make_directories(path) + self._disk.make_directories(self._second(path))

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        try:
            self._disk.rename(self._second(source), self._second(target))
        except OSError as error:
            raise CopiesDiffer(error.errno, error.strerror, target) from error

    def remove(self, path: str) -> None:
        self._disk.remove(path)
        # A file that could not be created in both copies is in the first one alone.
        if self._disk.exists(self._second(path)):
            self._disk.remove(self._second(path))

    def shrink(self, path: str, length: int) -> int:
        size = self._disk.shrink(path, length)
        if self._disk.exists(self._second(path)):
            self._disk.shrink(self._second(path), length)
        return size

    def remove_tree(self, path: str) -> None:
        self._disk.remove_tree(path)
        self._disk.remove_tree(self._second(path))

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(path)

    def _second(self, path: str) -> str:
        assert path == self._directory or path.startswith(f"{self._directory}/"), "this directory has the only copy"
        return copy_of(self._directory) + path[len(self._directory) :]


class _Both(Generic[_Kind]):
    """Two objects of one kind that change together."""

    def __init__(self, first: _Kind, second: _Kind) -> None:
        self._first, self._second = first, second

    @property
    def path(self) -> str:
        return self._first.path

    @property
    def is_directory(self) -> bool:
        return self._first.is_directory

    def fileno(self) -> int:
        """Return -1: a sync by descriptor would sync one copy only."""
        return -1

    def sync(self) -> None:
        self._first.sync()
        self._second.sync()

    def close(self) -> None:
        self._first.close()
        self._second.close()


class _MirroredFile(_Both[File]):
    def pwrite(self, pieces: Sequence[Bytes], position: int) -> None:
        self._first.pwrite(pieces, position)
        self._second.pwrite(pieces, position)

    def pread(self, length: int, position: int) -> bytes:
        return self._first.pread(length, position)

    def pread_cached(self, length: int, position: int) -> Bytes | None:
        return self._first.pread_cached(length, position)

    def size(self) -> int:
        return self._first.size()

    def write_back(self, position: int, length: int) -> None:
        self._first.write_back(position, length)
        self._second.write_back(position, length)

    def preallocate(self, position: int, length: int) -> None:
        self._first.preallocate(position, length)
        self._second.preallocate(position, length)

    def truncate(self, size: int) -> None:
        self._first.truncate(size)
        self._second.truncate(size)

    def moved_to(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._first.moved_to(path)
        self._second.moved_to(f"{copy_of(directory)}/{name}")
