"""What is to go wrong on a simulated disk next: armed by a test, asked by the disk at every operation."""

import errno
import os
from dataclasses import dataclass, field

from cordwood.storage.errors import SyncFailed


class Died(BaseException):
    """The process ended inside this call. Nothing of it may run on; the test goes on with `kill` or `power_cut`."""


@dataclass(slots=True)
class Faults:
    """Each fault strikes where its path matches: a part of a file's or directory's path, "" for all."""

    _opens: list[tuple[str, int]] = field(default_factory=list)
    _syncs: list[tuple[str, int]] = field(default_factory=list)
    _writes: list[tuple[str, int, int]] = field(default_factory=list)
    _unreadable: list[tuple[str, int, int]] = field(default_factory=list)
    _lying: list[str] = field(default_factory=list)
    _steps_to_live: int | None = None
    _fatal_sync: tuple[str, int] | None = None

    def refuse_opens(self, path: str = "", *, code: int = errno.EMFILE) -> None:
        """Opening, creating and removing trees answer `code` until `repair_copies`: the process has no descriptors
        left."""
        self._opens.append((path, code))

    def fail_next_sync(self, path: str = "", *, code: int = errno.EIO) -> None:
        """The next sync fails, what it covered never reaches the platters, and later syncs say nothing of it."""
        self._syncs.append((path, code))

    def lie_about_syncs(self, path: str = "") -> None:
        """Until `repair_copies`, syncs are acknowledged and do nothing: a power cut loses what they should have kept.

        No promise holds on such a disk.
        """
        self._lying.append(path)

    def fail_next_write(self, path: str = "", *, after: int = 0, code: int = errno.EIO) -> None:
        """The next write stops `after` bytes with an OSError."""
        self._writes.append((path, after, code))

    def fail_reads(self, path: str, start: int = 0, end: int = 1 << 62) -> None:
        """Reads that touch these bytes answer EIO until `repair_copies`."""
        self._unreadable.append((path, start, end))

    def replaced(self, path: str) -> None:
        """Another file has taken the place of this one: it lies elsewhere, and can be read."""
        self._unreadable = [fault for fault in self._unreadable if fault[0] != path]

    def die_after(self, changes: int | None) -> None:
        """Let `changes` more writes, syncs and entry changes happen; the process dies in the one behind them."""
        self._steps_to_live = changes

    def die_after_sync(self, path: str, changes: int) -> None:
        """As `die_after`, counted from the next sync of a file that matches."""
        self._fatal_sync = path, changes

    def heal(self) -> None:
        """Take back everything that was armed and has not struck."""
        self._opens.clear()
        self._syncs.clear()
        self._writes.clear()
        self._unreadable.clear()
        self._lying.clear()
        self._steps_to_live = self._fatal_sync = None

    def dies_now(self) -> bool:
        """Counts one change to the disk; whether it is the one in which the process dies."""
        if self._steps_to_live is None:
            return False
        self._steps_to_live -= 1
        return self._steps_to_live < 0

    def check_open(self, path: str) -> None:
        for part, code in self._opens:
            if part in path:
                raise os_error(code, path)

    def sync_fails(self, path: str) -> SyncFailed | None:
        """Why the next sync of `path` fails; None where it does not."""
        if self._fatal_sync is not None and self._fatal_sync[0] in path:
            self._steps_to_live, self._fatal_sync = self._fatal_sync[1], None
        for fault in self._syncs:
            part, code = fault
            if part in path:
                self._syncs.remove(fault)
                return SyncFailed(code, os.strerror(code), path)
        return None

    def sync_lies(self, path: str) -> bool:
        """Whether a sync of `path` only says that it was done."""
        return any(part in path for part in self._lying)

    def write_stops(self, path: str) -> tuple[int, OSError] | None:
        """After how many bytes a write of `path` stops, and why; None where it does not."""
        for fault in self._writes:
            part, after, code = fault
            if part in path:
                self._writes.remove(fault)
                return after, os_error(code, path)
        return None

    def check_read(self, path: str, start: int, end: int) -> None:
        for part, bad_start, bad_end in self._unreadable:
            if part in path and start < bad_end and bad_start < end:
                raise os_error(errno.EIO, path)


def os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
