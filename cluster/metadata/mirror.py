"""Every change made twice: a second copy of a directory's files, so that either alone has all that counts."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from cordwood.storage.disk import Bytes, Disk, File, Syncable

COPY = "copy"

_Kind = TypeVar("_Kind", bound=Syncable)


def copy_of(directory: str) -> str:
    """Where the second copies of a directory's files are."""
    return f"{directory}/{COPY}"


class MirroredDisk:
    """A Disk for what lies in `directory`. Reads see the first copy; changes reach the first, then the second.

    Each copy goes through the same states in the same order, and both are synced before either goes on. So each is at
    any moment what a single one would be, and everything that counts is in both.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory

    def open(self, path: str, *, create: bool = False) -> File:
        return _MirroredFile(self._disk.open(path, create=create), self._disk.open(self._second(path), create=create))

    def open_directory(self, path: str) -> Syncable:
        return _Both(self._disk.open_directory(path), self._disk.open_directory(self._second(path)))

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def make_directories(self, path: str) -> list[str]:
        return self._disk.make_directories(path) + self._disk.make_directories(self._second(path))

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.rename(self._second(source), self._second(target))

    def remove(self, path: str) -> None:
        self._disk.remove(path)
        self._disk.remove(self._second(path))

    def remove_tree(self, path: str) -> None:
        self._disk.remove_tree(path)
        self._disk.remove_tree(self._second(path))

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(path)

    def _second(self, path: str) -> str:
        assert path == self._directory or path.startswith(f"{self._directory}/"), "only this directory has a copy"
        return copy_of(self._directory) + path[len(self._directory) :]


class _Both(Generic[_Kind]):
    """Two of a kind that change together."""

    def __init__(self, first: _Kind, second: _Kind) -> None:
        self._first, self._second = first, second

    @property
    def path(self) -> str:
        return self._first.path

    @property
    def is_directory(self) -> bool:
        return self._first.is_directory

    def fileno(self) -> int:
        """None: one descriptor would sync one copy only."""
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

    def preallocate(self, position: int, length: int) -> None:
        self._first.preallocate(position, length)
        self._second.preallocate(position, length)

    def truncate(self, size: int) -> None:
        self._first.truncate(size)
        self._second.truncate(size)
