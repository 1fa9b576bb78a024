"""The one seam between a log and what it is kept on: files, and the directories that name them."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Protocol

from cordwood.storage.errors import DamagedLog, read_failed

Bytes = bytes | bytearray | memoryview

UNREADABLE = b"\xff"
UNREADABLE_BYTES_MIN = 512
"""A sector: no smaller part of a read that failed is tried by itself."""


class Syncable(Protocol):
    """Something whose changes count only once they are synced: a file's bytes, or a directory's entries."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """The descriptor, for the kernel's asynchronous sync; -1 where there is none (simulated)."""
        ...

    @property
    def is_directory(self) -> bool:
        """Whether it takes a full fsync: an fdatasync of a directory may leave out its entries."""
        ...

    def sync(self) -> None:
        """fdatasync for a file, fsync for a directory. Blocks. SyncFailed is final: what it covered may be lost."""
        ...

    def close(self) -> None: ...


class File(Syncable, Protocol):
    """One open file. Positions and lengths are bytes. What was written counts only after `sync`."""

    def pwrite(self, pieces: Sequence[Bytes], position: int) -> None:
        """Write all the pieces, one behind the other, or raise OSError (a short write is an error)."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. Blocks while the disk is read."""
        ...

    def pread_cached(self, length: int, position: int) -> Bytes | None:
        """As `pread` where memory has the bytes; None where the disk would have to be waited for."""
        ...

    def size(self) -> int: ...

    def preallocate(self, position: int, length: int) -> None:
        """Reserve zeroed space, growing the file. Raises OSError(ENOSPC) and changes nothing that was written."""
        ...

    def truncate(self, size: int) -> None: ...


class Disk(Protocol):
    """A tree of directories. Entries made, renamed or removed are sure only once their directory is synced."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""
        ...

    def open_directory(self, path: str) -> Syncable: ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directories(self, path: str) -> list[str]:
        """Make `path` and its missing parents. Returns the directories whose entries changed, outermost first."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """What is left on the file system that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system that holds `path`."""
        ...


def sync_directory(disk: Disk, path: str) -> None:
    """Make the entries of a directory sure: needed after every create, rename and remove that must last."""
    directory = disk.open_directory(path)
    try:
        directory.sync()
    finally:
        directory.close()


def open_directories(disk: Disk, paths: Iterable[str]) -> list[Syncable]:
    """Open all of them. Raises OSError, with none left open."""
    with ExitStack() as opened:
        directories = [opened.enter_context(closing(disk.open_directory(path))) for path in paths]
        opened.pop_all()
    return directories


def read_around(file: File, length: int, position: int) -> bytes:
    """As `File.pread`, with UNREADABLE bytes where the disk cannot read: neither a batch nor a hole. Raises OSError."""
    try:
        return file.pread(length, position)
    except OSError as error:
        if not isinstance(read_failed(error, file.path, position), DamagedLog):
            raise
    length = min(length, file.size() - position)
    if length <= UNREADABLE_BYTES_MIN:
        return UNREADABLE * length
    half = length // 2
    return read_around(file, half, position) + read_around(file, length - half, position + half)
