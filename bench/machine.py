"""The machine under the benchmark: its memory made warm, its CPU seconds counted, and what it is."""

import contextlib
import mmap
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

GIB = 1 << 30
KEPT_FREE_GIB = 4
WARM_GIB_MAX = 18
HUGE_PAGE_BYTES = 2 << 20
PAGE_REPORTING = Path("/sys/module/page_reporting/parameters/page_reporting_order")
NO_PAGE_REPORTING = 11
"""An order above that of the largest free block: no block is ever large enough to be given back."""


def warm_memory(gib: int | None = None) -> int:
    """Touch free memory once, and return how many GiB it was; with None, as much as is free within bounds.

    On virtual machines a page that the guest touches for the first time costs some 15 times a warm one. Whoever runs
    first would pay for it, most of all in the page cache.
    """
    gib = _free_gib() if gib is None else gib
    if gib <= 0:
        return 0
    area = mmap.mmap(-1, gib * GIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    zeros = bytes(HUGE_PAGE_BYTES)
    for at in range(0, gib * GIB, HUGE_PAGE_BYTES):
        area[at : at + HUGE_PAGE_BYTES] = zeros
    area.close()
    return gib


@contextlib.contextmanager
def memory_kept(setting: Path = PAGE_REPORTING) -> Iterator[bool]:
    """While inside, a virtual machine gives no free page back to its host, so that warm memory stays warm.

    Else the page cache of a deleted topic is cold again within seconds, and whoever comes next pays for it. Says
    whether that is held off; where the kernel has no such setting, or it may not be written, nothing is done.
    """
    try:
        before = setting.read_text().strip()
        is_held = before.isdecimal() and int(before) >= NO_PAGE_REPORTING
        if not is_held:
            setting.write_text(str(NO_PAGE_REPORTING))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        if not is_held:
            setting.write_text(before)


def forget_files(directory: Path) -> bool:
    """Put all files below the directory out of the page cache. False where the system has no means for it."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                _forget(path)
    return True


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # A page that is still to be written stays in memory whatever is advised.
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _free_gib() -> int:
    try:
        available_kib = _field(Path("/proc/meminfo"), "MemAvailable")
    except OSError:
        return 0
    return min(WARM_GIB_MAX, available_kib * 1024 // GIB - KEPT_FREE_GIB)


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes since they began. 0.0 where there is no /proc."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        # The name in brackets may itself hold blanks and brackets; utime and stime are fields 14 and 15 of them all.
        fields = stat.rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def largest_resident_mb(pids: Iterable[int]) -> float:
    """Resident memory in MB of the process that has most. 0.0 where there is no /proc."""
    return max(map(_resident_mb, pids), default=0.0)


def _resident_mb(pid: int) -> float:
    try:
        return _field(Path(f"/proc/{pid}/status"), "VmRSS") * 1024 / 1e6
    except OSError:
        return 0.0


def description() -> dict[str, str | int]:
    """What a reader of the results needs to know of the machine."""
    return {
        "cores": os.cpu_count() or 0,
        "processor": _processor(),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1_000_000,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _field(path: Path, name: str) -> int:
    """A number of a file with lines like `VmRSS:   1234 kB`; 0 where it has no such line."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
