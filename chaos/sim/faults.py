"""The fault model of a simulated disk: I/O errors, lying syncs and process death, armed in advance.

| fault | how it is made | what is lost |
|---|---|---|
| failed open | `refuse_opens` | nothing |
| failed sync | `fail_next_sync` | everything that the sync should have covered, once the power fails |
| lying sync | `lie_about_syncs` | the same; no promise holds on such a disk |
| torn or failed write | `fail_next_write` | the rest of the write |
| read error | `fail_reads` | the bytes of the range, until another file replaces the file |
| process death | `die_after`, `die_after_sync` | the rest of the operation |
"""

import errno
import os
from dataclasses import dataclass, field

from cordwood.storage.errors import SyncFailed


class Died(BaseException):
    """The process ended inside this call. No more of its code may run; `kill` or `power_cut` follows."""


@dataclass(slots=True)
class DiskFaults:
    """Armed faults of one disk. A fault strikes the paths that contain its text; "" matches all."""

    _opens: list[tuple[str, int]] = field(default_factory=list)
    _syncs: list[tuple[str, int]] = field(default_factory=list)
    _writes: list[tuple[str, int, int]] = field(default_factory=list)
    _unreadable: list[tuple[str, int, int]] = field(default_factory=list)
    _lying: list[str] = field(default_factory=list)
    _steps_to_live: int | None = None
    _fatal_sync: tuple[str, int] | None = None

    def refuse_opens(self, path: str = "", *, code: int = errno.EMFILE) -> None:
        """Fail opens, creates and tree removals with `code` until `heal`, as without free file descriptors."""
        self._opens.append((path, code))

    def fail_next_sync(self, path: str = "", *, code: int = errno.EIO) -> None:
        """Fail the next sync. The data that it covered never reaches the disk, and later syncs succeed without it."""
        self._syncs.append((path, code))

    def lie_about_syncs(self, path: str = "") -> None:
        """Acknowledge file syncs without effect until `heal`, so that a power cut loses synced data.

        No promise holds on such a disk.
        """
        self._lying.append(path)

    def fail_next_write(self, path: str = "", *, after: int = 0, code: int = errno.EIO) -> None:
        """Fail the next write with an OSError after `after` bytes."""
        self._writes.append((path, after, code))

    def disarm(self, path: str) -> None:
        """Disarm the failing writes and syncs of exactly this text."""
        self._writes = [fault for fault in self._writes if fault[0] != path]
        self._syncs = [fault for fault in self._syncs if fault[0] != path]

    def fail_reads(self, path: str, start: int = 0, end: int = 1 << 62) -> None:
        """Fail reads that touch these bytes with EIO until `heal`."""
        self._unreadable.append((path, start, end))

    def replaced(self, path: str) -> None:
        """Clear the read errors of a path whose file was replaced by another file."""
        self._unreadable = [fault for fault in self._unreadable if fault[0] != path]

    def die_after(self, changes: int | None) -> None:
        """Let `changes` more writes, syncs and entry changes happen. The process dies in the next one."""
        self._steps_to_live = changes

    def die_after_sync(self, path: str, changes: int) -> None:
        """Arm `die_after` at the next sync of a matching file."""
        self._fatal_sync = path, changes

    def heal(self) -> None:
        """Disarm every fault."""
        self._opens.clear()
        self._syncs.clear()
        self._writes.clear()
        self._unreadable.clear()
        self._lying.clear()
        self._steps_to_live = self._fatal_sync = None

    def dies_now(self) -> bool:
        """Count one change to the disk. Return whether the process dies in it."""
        if self._steps_to_live is None:
            return False
        self._steps_to_live -= 1
        return self._steps_to_live < 0

    def check_open(self, path: str) -> None:
        for part, code in self._opens:
            if part in path:
                raise os_error(code, path)

    def sync_fails(self, path: str) -> SyncFailed | None:
        """Return the error of the next sync of `path`; None where the sync succeeds."""
        if self._fatal_sync is not None and self._fatal_sync[0] in path:
            self._steps_to_live, self._fatal_sync = self._fatal_sync[1], None
        for fault in self._syncs:
            part, code = fault
            if part in path:
                self._syncs.remove(fault)
                return SyncFailed(code, os.strerror(code), path)
        return None

    def sync_lies(self, path: str) -> bool:
        """Return whether a sync of `path` is acknowledged without effect."""
        return bool(self._lying) and any(part in path for part in self._lying)

    def write_stops(self, path: str) -> tuple[int, OSError] | None:
        """Return the number of bytes after which a write of `path` stops, and the error; None if the write succeeds."""
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
