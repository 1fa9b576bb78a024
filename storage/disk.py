"""Disk, file and directory interfaces: the only access of a log to the file system."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Protocol

from cordwood.storage.errors import DamagedLog, read_failed
from cordwood.storage.steps import Steps

Bytes = bytes | bytearray | memoryview

UNREADABLE = b"\xff"
UNREADABLE_BYTES_MIN = 512
"""Sector size: a failed read is split into halves, but a part of this size or less is not split again."""
REMOVAL_STEP_BYTES = 4 << 20
"""Bytes that one step of a removal frees."""
FILE_BYTES = 64 << 10
"""What a file counts in a step besides its bytes: a step removes 64 empty files."""


class Syncable(Protocol):
    """A file or directory whose changes are durable only after a sync."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """Return the descriptor for the kernel's asynchronous sync; -1 if there is none (simulated disk)."""
        ...

    @property
    def is_directory(self) -> bool:
        """Whether a full fsync is needed: an fdatasync of a directory may leave out its entries."""
        ...

    def sync(self) -> None:
        """Call fdatasync for a file, fsync for a directory. Blocks. Raises SyncFailed: the changes may be lost."""
        ...

    def close(self) -> None: ...


class File(Syncable, Protocol):
    """An open file. Positions and lengths are bytes. Writes are durable only after `sync`."""

    def pwrite(self, pieces: Sequence[Bytes], position: int) -> None:
        """Write all pieces, one after the other. Raises OSError, also for a short write."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file. Blocks on the disk."""
        ...

    def pread_cached(self, length: int, position: int) -> Bytes | None:
        """Return the bytes as `pread` if the page cache has them; None if the disk may have to be read."""
        ...

    def size(self) -> int: ...

    def write_back(self, position: int, length: int) -> None:
        """Start to write a range to the disk, and wait for the range of this length before it. Raises SyncFailed.

        Only `sync` makes anything durable, and a sync of another file waits for what was written before: with this it
        waits for two ranges at most (RocksDB's `strict_bytes_per_sync`).
        """
        ...

    def preallocate(self, position: int, length: int) -> None:
        """Reserve zeroed space and grow the file. Raises OSError(ENOSPC), with no change to written bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Change the size. An empty file may keep blocks that were allocated beyond its end."""
        ...

    def moved_to(self, path: str) -> None:
        """Take the path that a rename gave the file: errors name it."""
        ...


class Disk(Protocol):
    """A tree of directories. A create, rename or remove is durable only after a sync of its directory."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises FileNotFoundError unless `create`."""
        ...

    def open_directory(self, path: str) -> Syncable: ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names, sorted. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool: ...

    def make_directories(self, path: str) -> list[str]:
        """Make `path` and its missing parents. Return the directories whose entries changed, outermost first."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def shrink(self, path: str, length: int) -> int:
        """Cut `length` bytes off the end of a file, unless it is not longer. Return its size before.

        0, with no change, for what is no regular file, and for a file with another name (a hard link).
        """
        ...

    def remove_tree(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Return the free bytes of the file system that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size in bytes of the file system that holds `path`."""
        ...


def sync_directory(disk: Disk, path: str) -> None:
    """Flush the entries of a directory: needed after every create, rename and remove that must be durable."""
    directory = disk.open_directory(path)
    try:
        directory.sync()
    finally:
        directory.close()


def removal(disk: Disk, path: str) -> Steps[None]:
    """Remove a file or a tree, in steps that free about REMOVAL_STEP_BYTES. Raises OSError.

    The kernel frees all blocks of a removed file at once, and an SSD discards them: syncs of other files wait for it.
    A large file is therefore shortened step by step (as by RocksDB's `SstFileManager`). Of a link, only the link is
    removed.
    """
    left = REMOVAL_STEP_BYTES
    for freed in _freed(disk, path):
        left -= freed
        if left <= 0:
            yield
            left = REMOVAL_STEP_BYTES


def _freed(disk: Disk, path: str) -> Iterator[int]:
    """Remove a file or a tree. Yield the bytes that each change has freed, with FILE_BYTES for the file itself."""
    while (size := disk.shrink(path, REMOVAL_STEP_BYTES)) > REMOVAL_STEP_BYTES:
        yield REMOVAL_STEP_BYTES
    try:
        disk.remove(path)
    except IsADirectoryError:
        for name in disk.list_directory(path):
            yield from _freed(disk, f"{path}/{name}")
        disk.remove_tree(path)
    yield size + FILE_BYTES


def open_directories(disk: Disk, paths: Iterable[str]) -> list[Syncable]:
    """Open all directories. Raises OSError, with none left open."""
    with ExitStack() as opened:
        directories = [opened.enter_context(closing(disk.open_directory(path))) for path in paths]
        opened.pop_all()
    return directories


def read_around(file: File, length: int, position: int) -> bytes:
    """Return the bytes as `File.pread`, with UNREADABLE bytes where the disk cannot read. Raises OSError.

    UNREADABLE bytes are neither a valid batch nor a hole.
    """
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
