"""The real disk: files by descriptor, with a position in every call and no buffer in this process."""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Sequence

from cordwood.storage.disk import Bytes
from cordwood.storage.errors import SyncFailed

LOCK_FILE = ".lock"
_CANNOT_TELL = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that cannot tell whether a read needs the disk. One of them is tmpfs, where everything is."""

_sync_file_range = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_WAIT, _START = 1, 2
"""SYNC_FILE_RANGE_WAIT_BEFORE and SYNC_FILE_RANGE_WRITE."""
_HAVE_NO_RANGES = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE})
"""Errors of systems and file systems without sync_file_range."""


class RealFile:
    """A file of the operating system. Writes go to its page cache, and to the disk with `sync`."""

    is_directory = False

    __slots__ = ("_fd", "_headroom_bytes", "_path")

    def __init__(self, path: str, fd: int, headroom_bytes: int = 0) -> None:
        self._path = path
        self._fd = fd
        self._headroom_bytes = headroom_bytes

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def pwrite(self, pieces: Sequence[Bytes], position: int) -> None:
        written = os.pwritev(self._fd, pieces, position)
        wanted = 0
        for piece in pieces:
            wanted += len(piece)
        if written != wanted:
            rest = memoryview(b"".join(pieces))[written:]
            # Writing the rest raises the error that made the write short: most likely there is no room.
            if os.pwrite(self._fd, rest, position + written) != len(rest):
                raise OSError(errno.EIO, f"short write: {written} of {wanted} bytes", self._path)

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._fd, length, position)

    def pread_cached(self, length: int, position: int) -> Bytes | None:
        buffer = bytearray(length)
        try:
            got = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _CANNOT_TELL:
                raise
            got = os.preadv(self._fd, [buffer], position)
        # After a short read, the rest is not in memory, or the file ends: `pread` decides which.
        return buffer if got == length else None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write_back(self, position: int, length: int) -> None:
        if not self._sync_range(position, length, _START):
            self.sync()
        elif position:
            self._sync_range(max(position - length, 0), min(position, length), _WAIT)

    def _sync_range(self, position: int, length: int, flag: int) -> bool:
        """Call sync_file_range. Return False if the system has none. Raises SyncFailed.

        The kernel reports a failed write once: the next fdatasync by this descriptor may succeed.
        """
        if _sync_file_range is None:
            return False
        if not _sync_file_range(self._fd, position, length, flag):
            return True
        error = ctypes.get_errno()
        if error not in _HAVE_NO_RANGES:
            raise SyncFailed(error, os.strerror(error), self._path)
        return False

    def preallocate(self, position: int, length: int) -> None:
        space = os.fstatvfs(self._fd)
        if space.f_bavail * space.f_frsize < self._headroom_bytes + length:
            raise OSError(errno.ENOSPC, "the rest of the free space is reserved for recovery", self._path)
        os.posix_fallocate(self._fd, position, length)

    def truncate(self, size: int) -> None:
        # After a truncation to nothing, even of an empty file, ext4 writes the file when it is closed (auto_da_alloc).
        if size or self.size():
            os.ftruncate(self._fd, size)

    def moved_to(self, path: str) -> None:
        self._path = path

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self._path) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class RealDirectory:
    """A directory held open, so that its entries can be synced."""

    is_directory = True

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self._path) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """File systems of this machine."""

    def __init__(self, headroom_bytes: int = 0) -> None:
        """`headroom_bytes` is left free by preallocation: an index, a checkpoint or a journal must find room."""
        self._headroom_bytes = headroom_bytes

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o640), self._headroom_bytes)

    def open_directory(self, path: str) -> RealDirectory:
        return RealDirectory(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make_directories(self, path: str) -> list[str]:
        changed = []
        missing = os.path.abspath(path)
        while not os.path.isdir(missing):
            missing = os.path.dirname(missing)
            changed.append(missing)
        os.makedirs(path, mode=0o750, exist_ok=True)
        return changed[::-1]

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def shrink(self, path: str, length: int) -> int:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return 0
        if found.st_size > length:
            os.truncate(path, found.st_size - length)
        return found.st_size

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def free_bytes(self, path: str) -> int:
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def total_bytes(self, path: str) -> int:
        space = os.statvfs(path)
        return space.f_blocks * space.f_frsize


class DirectoryInUse(OSError):
    """Another process has locked the directory."""


def lock_directory(path: str) -> int:
    """Lock a directory against other brokers until the returned descriptor is closed. Raises DirectoryInUse."""
    descriptor = os.open(f"{path}/{LOCK_FILE}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DirectoryInUse(
            errno.EWOULDBLOCK,
            "another broker is running on this directory: stop it, or give this broker another log.dirs",
            path,
        ) from None
    return descriptor
