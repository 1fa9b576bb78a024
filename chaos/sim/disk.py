"""A simulated disk that keeps only synced data, with injectable faults: a `cordwood.storage.disk.Disk` in memory."""

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import NoReturn
from weakref import WeakSet

from cordwood.chaos.sim.entries import Directory, Tree, no_such_file
from cordwood.chaos.sim.faults import Died, DiskFaults, os_error
from cordwood.chaos.sim.pages import SECTOR_BYTES, Pages
from cordwood.storage.disk import Bytes, File, Syncable
from cordwood.storage.errors import SyncFailed

UNLIMITED_BYTES = 1 << 50


class SimulatedDisk:
    """Files and directories in memory, with separate states for the page cache and the disk.

    `power_cut` loses unsynced data: each sector of a file, each new file size, and each directory's newest entries, by
    random choice. `kill` loses only the open handles. Neither reads a clock; equal seeds and calls give equal disks.
    The model is stricter than ext4 in one point: the entry of a new file is durable only once its directory was synced,
    even if the file was.
    """

    def __init__(self, rng: random.Random, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        self.faults = DiskFaults()
        self.capacity_bytes = capacity_bytes
        self.rng = rng
        self.on_death: Callable[[], None] = _nothing
        """Called when the process dies inside a disk operation."""
        self.on_sync: Callable[[str], None] = _ignored
        """Called with the path of each acknowledged sync."""
        self.on_call: Callable[[], None] = _nothing
        """Called at the start of each operation of a program, except `close`."""
        self.has_lied = False
        """Whether data was lost or corrupted, or a sync failed, so that reads may not return what was written."""
        self._harmed: set[str] = set()
        """Files that lost data and have not been replaced since."""
        self._handles: WeakSet[_Handle] = WeakSet()
        self._tree = Tree()
        self._incarnation = self._boots = 0

    def open(self, path: str, *, create: bool = False) -> File:
        self.on_call()
        self.faults.check_open(path)
        if create and self._tree.find(path) is None:
            directory, name = self._tree.place(path)
            self._step()
            self._tree.change((directory, name, Pages()))
        return _SimulatedFile(self, path, self._tree.file(path))

    def open_directory(self, path: str) -> Syncable:
        self.on_call()
        self.faults.check_open(path)
        return _SimulatedDirectory(self, path, self._tree.directory(path))

    def list_directory(self, path: str) -> list[str]:
        self.on_call()
        return sorted(self._tree.directory(path).seen)

    def exists(self, path: str) -> bool:
        self.on_call()
        return self._tree.find(path) is not None

    def make_directories(self, path: str) -> list[str]:
        self.on_call()
        missing = os.path.normpath(path)
        to_make = []
        while self._tree.find(missing) is None:
            to_make.append(missing)
            missing = os.path.dirname(missing)
        self._tree.directory(missing)
        for directory in reversed(to_make):
            parent, name = self._tree.place(directory)
            self._step()
            self._tree.change((parent, name, Directory()))
        return [os.path.dirname(made) for made in reversed(to_make)]

    def rename(self, source: str, target: str) -> None:
        self.on_call()
        node = self._tree.find(source)
        if node is None:
            raise no_such_file(source)
        replaced = self._tree.find(target)
        if isinstance(replaced, Directory) and replaced.seen:
            raise os_error(errno.ENOTEMPTY, target)
        (from_directory, old), (to_directory, new) = self._tree.place(source), self._tree.place(target)
        self._step()
        self._tree.change((from_directory, old, None), (to_directory, new, node))
        self._harmed.discard(target)
        self.faults.replaced(target)

    def remove(self, path: str) -> None:
        self.on_call()
        self._tree.file(path)
        directory, name = self._tree.place(path)
        self._step()
        self._tree.change((directory, name, None))

    def shrink(self, path: str, length: int) -> int:
        self.on_call()
        node = self._tree.find(path)
        if node is None:
            raise no_such_file(path)
        if isinstance(node, Directory):
            return 0
        size = node.seen.size
        if size > length:
            self._step()
            node.resize(size - length)
        return size

    def remove_tree(self, path: str) -> None:
        self.on_call()
        self.faults.check_open(path)
        for name, node in sorted(self._tree.directory(path).seen.items()):
            below = os.path.join(path, name)
            if isinstance(node, Directory):
                self.remove_tree(below)
            else:
                self.remove(below)
        if self._tree.directory(path).seen:
            raise os_error(errno.ENOTEMPTY, path)
        directory, name = self._tree.place(path)
        self._step()
        self._tree.change((directory, name, None))

    def free_bytes(self, path: str) -> int:
        self.on_call()
        self._tree.directory(path)
        return self._free_bytes()

    def total_bytes(self, path: str) -> int:
        self.on_call()
        self._tree.directory(path)
        return self.capacity_bytes

    @property
    def boot_id(self) -> str:
        """A new identifier after each power cut."""
        return f"boot {self._boots}"

    def kill(self) -> None:
        """Kill the process. The page cache survives; open handles do not."""
        self._incarnation += 1
        self.faults.die_after(None)

    def power_cut(self, keep: float | None = None) -> None:
        """Cut the power. Each unsynced item is kept with probability `keep`.

        Without `keep` the probability is random: 0, 1, or any value between.
        """
        self.kill()
        self._boots += 1
        share = self.rng.choice((0.0, 1.0, self.rng.random())) if keep is None else keep
        self._tree.lose_power(self.rng, share)
        for _, pages in self._tree.files():
            pages.lose_power(self.rng, share)

    def power_cut_keeping(self, length: int) -> None:
        """Cut the power. All names are kept, but only the first `length` unsynced bytes of each file.

        The bytes count in the order in which they were written since the file's last sync.
        """
        self.kill()
        self._boots += 1
        self._tree.lose_power(self.rng, 1.0)
        for _, pages in self._tree.files():
            pages.lose_power_after(length)

    def leave_free(self, length: int) -> None:
        """Shrink the disk until only `length` bytes are free."""
        self.capacity_bytes = self._used_bytes() + length

    @property
    def open_count(self) -> int:
        """The number of files and directories that the live process holds open."""
        return sum(handle.is_open for handle in self._handles)

    def files(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return [path for path, _ in self._tree.files()]

    def content(self, path: str) -> bytes:
        pages = self._tree.file(path)
        return pages.seen.read(pages.seen.size, 0)

    def pages(self, path: str) -> Pages:
        """Return the pages of a file, without effect on the simulation. Raises OSError."""
        return self._tree.file(path)

    def peek(self, path: str, length: int, position: int) -> bytes:
        """Return the bytes that a program would read. Raises OSError."""
        return self.pages(path).seen.read(length, position)

    def durable_content(self, path: str) -> bytes:
        """Return the content that survives the worst possible power cut; empty if the file's name does not survive."""
        pages = self._tree.find_kept(path)
        return pages.kept.read(pages.kept.size, 0) if isinstance(pages, Pages) else b""

    def is_durable(self, path: str, length: int) -> bool:
        """Return whether the first `length` bytes of a file, and its name, survive any power cut."""
        pages = self._tree.find_kept(path)
        return isinstance(pages, Pages) and pages is self._tree.find(path) and pages.is_kept(length)

    def flip(self, path: str, position: int, bit: int) -> None:
        """Flip one bit of a file, on the disk and in the page cache. Raises IndexError outside the file."""
        self.has_lied = True
        self._tree.file(path).flip(position, bit)

    def lose(self, path: str) -> None:
        """Remove a file from the page cache and from the disk. Raises FileNotFoundError."""
        self._tree.file(path)
        self._tree.lose(path)
        self._harm(path)

    def shorten(self, path: str, size: int) -> None:
        """Remove all bytes of a file from `size` on."""
        self._tree.file(path).shorten(size)
        self._harm(path)

    def zero(self, path: str, position: int, length: int) -> None:
        """Make a range of a file read as zeros. Raises IndexError outside the file."""
        self._tree.file(path).zero(position, length)
        self._harm(path)

    def has_harmed(self, path: str) -> bool:
        """Return whether a file lost data and has not been replaced since."""
        return path in self._harmed

    def _harm(self, path: str) -> None:
        self.has_lied = True
        self._harmed.add(path)

    def cool(self) -> None:
        """Evict synced files from the page cache, so that `pread_cached` misses until the file is read once."""
        for _, pages in self._tree.files():
            pages.is_cached = not pages.is_synced

    def _free_bytes(self) -> int:
        if self.capacity_bytes == UNLIMITED_BYTES:
            return UNLIMITED_BYTES
        return max(0, self.capacity_bytes - self._used_bytes())

    def _used_bytes(self) -> int:
        return self._tree.used_bytes()

    def _step(self) -> None:
        if self.faults.dies_now():
            self._die()

    def _die(self) -> NoReturn:
        self.kill()
        self.on_death()
        raise Died

    def _room_for(self, pages: Pages, end: int) -> int:
        """Return the size to which a file may grow on the way to `end`."""
        if end <= pages.seen.size or self.capacity_bytes == UNLIMITED_BYTES:
            return end
        return min(end, pages.seen.size + self._free_bytes())


class _Handle:
    """A file handle. Once its process is dead, `close` does nothing and all other operations fail with EBADF."""

    __slots__ = ("__weakref__", "_disk", "_incarnation", "_is_closed", "_path")

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._incarnation = disk._incarnation
        self._is_closed = False
        disk._handles.add(self)

    @property
    def is_open(self) -> bool:
        return not self._is_closed and self._incarnation == self._disk._incarnation

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        self._check()
        return -1

    def close(self) -> None:
        self._is_closed = True

    def _check(self) -> None:
        disk = self._disk
        disk.on_call()
        if self._is_closed or self._incarnation != disk._incarnation:
            raise os_error(errno.EBADF, self._path)

    def _sync_failure(self) -> SyncFailed | None:
        self._check()
        self._disk._step()
        failure = self._disk.faults.sync_fails(self._path)
        self._disk.has_lied |= failure is not None
        return failure


class _SimulatedFile(_Handle):
    __slots__ = ("_pages",)
    is_directory = False

    def __init__(self, disk: SimulatedDisk, path: str, pages: Pages) -> None:
        super().__init__(disk, path)
        self._pages = pages

    def pwrite(self, pieces: Sequence[Bytes], position: int) -> None:
        self._check()
        content = b"".join(pieces)
        if self._disk.faults.dies_now():
            self._pages.write(content[: self._torn_length(position, len(content))], position)
            self._disk._die()
        if (stop := self._disk.faults.write_stops(self._path)) is not None:
            after, error = stop
            self._pages.write(content[:after], position)
            raise error
        room = self._disk._room_for(self._pages, position + len(content)) - position
        if room < len(content):
            self._pages.write(content[: max(0, room)], position)
            raise os_error(errno.ENOSPC, self._path)
        self._pages.write(content, position)

    def _torn_length(self, position: int, length: int) -> int:
        """Return the length of an interrupted write: the kernel copies page by page, so up to a sector boundary."""
        end = self._disk.rng.randrange(position, position + length + 1)
        return length if end == position + length else max(0, end - end % SECTOR_BYTES - position)

    def pread(self, length: int, position: int) -> bytes:
        self._check()
        self._disk.faults.check_read(self._path, position, position + length)
        self._pages.is_cached = True
        return self._pages.seen.read(length, position)

    def pread_cached(self, length: int, position: int) -> bytes | None:
        self._check()
        return self.pread(length, position) if self._pages.is_cached else None

    def size(self) -> int:
        self._check()
        return self._pages.seen.size

    def write_back(self, position: int, length: int) -> None:
        assert position + length <= self._pages.seen.size, "it was written before"
        if (failure := self._sync_failure()) is not None:
            self._pages.fail_sync()
            raise failure

    def preallocate(self, position: int, length: int) -> None:
        self._check()
        self._disk._step()
        if self._disk._room_for(self._pages, position + length) < position + length:
            raise os_error(errno.ENOSPC, self._path)
        self._pages.reserve(position + length)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk._step()
        self._pages.resize(size)

    def moved_to(self, path: str) -> None:
        self._path = path

    def sync(self) -> None:
        if (failure := self._sync_failure()) is not None:
            self._pages.fail_sync()
            raise failure
        if not self._disk.faults.sync_lies(self._path):
            self._pages.sync()
        self._disk.on_sync(self._path)


class _SimulatedDirectory(_Handle):
    __slots__ = ("_directory",)
    is_directory = True

    def __init__(self, disk: SimulatedDisk, path: str, directory: Directory) -> None:
        super().__init__(disk, path)
        self._directory = directory

    def sync(self) -> None:
        if (failure := self._sync_failure()) is not None:
            self._disk._tree.fail_sync(self._directory)
            raise failure
        self._disk._tree.sync(self._directory)
        self._disk.on_sync(self._path)


def _nothing() -> None:
    """Ignore the event."""


def _ignored(_path: str) -> None:
    """Ignore the sync."""
