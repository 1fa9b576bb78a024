"""File systems of brokers whose power is cut, whose space is taken, or whose device refuses writes."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""EXT4_GOING_FLAGS_NOLOGFLUSH: not even the journal's last transaction reaches the disk."""

FILLER = "filler"
REPAIRED = 1
"""e2fsck's exit code after it has corrected small errors, such as counters."""


class CannotMount(Exception):
    """This machine or this user may not mount a file system."""


class LoopFileSystem:
    """An ext4 file system in a file, mounted below `place`, and unmounted at the end of the `with` block.

    The file is in `device`: a file system of its own, where the device is to run out of space.
    """

    def __init__(self, place: Path, size_bytes: int, device: Path | None = None) -> None:
        self._device = device or place
        self._image = self._device / "disk.ext4"
        self.path = place / "disk"
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            raise CannotMount("this needs root and mkfs.ext4")
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", str(self._image))
        self.path.mkdir()
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(CannotMount):
            self._unmount()

    def cut_power(self) -> None:
        """Cut the power: nothing reaches the disk any more, and every call on the file system fails."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount again, as after a boot: the journal is replayed. No process may have a file open here."""
        self._unmount()
        self._mount()

    def fill(self) -> None:
        """Take all free space."""
        _fill(self.path)

    def make_room(self) -> None:
        """Free the space that `fill` took."""
        (self.path / FILLER).unlink(missing_ok=True)

    def starve(self) -> None:
        """Take all free space of the device below: writes of new blocks fail when they are synced."""
        _fill(self._device)

    def feed(self) -> None:
        """Free the space of the device, and mount again. No process may have a file open here.

        Where metadata of the file system itself was lost, a new, empty file system replaces it.
        """
        (self._device / FILLER).unlink(missing_ok=True)
        self._unmount()
        if not self._is_sound():
            _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def _is_sound(self) -> bool:
        # The journal is replayed first: without that, the check reports errors on any file system that was in use.
        replayed, checked = (_done("e2fsck", check, str(self._image)) for check in ("-p", "-fn"))
        return replayed.returncode in (0, REPAIRED) and checked.returncode == 0

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def _unmount(self) -> None:
        _run("umount", str(self.path))


class MemoryFileSystem:
    """A file system of `size_bytes` in memory, mounted at `path`, and unmounted at the end of the `with` block.

    Its files are copied to the directory `kept`, if there is one, before they are gone.
    """

    def __init__(self, path: Path, size_bytes: int, kept: Path | None = None) -> None:
        self.path = path
        self._size_bytes, self._kept = size_bytes, kept

    def __enter__(self) -> Self:
        self.path.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={self._size_bytes}", "device", str(self.path))
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(CannotMount):
            if self._kept is not None:
                _run("cp", "--sparse=always", "-r", f"{self.path}/.", str(self._kept))
        with contextlib.suppress(CannotMount):
            _run("umount", str(self.path))


def _fill(path: Path) -> None:
    """Take all the space that a file system has for users other than root."""
    with (path / FILLER).open("wb") as filler:
        while free_bytes := _free_bytes(path):
            # Other writers may have taken some of the space meanwhile.
            with contextlib.suppress(OSError):
                os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), free_bytes)


def _free_bytes(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _done(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _run(*command: str) -> None:
    done = _done(*command)
    if done.returncode:
        raise CannotMount(f"{command[0]} failed: {done.stderr.strip()}")
