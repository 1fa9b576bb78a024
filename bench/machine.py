"""The machine under the benchmark: warm memory, page cache, CPU seconds, and its description."""

import contextlib
import mmap
import os
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

GIB = 1 << 30
KEPT_FREE_GIB = 4
WARM_GIB_MAX = 18
HUGE_PAGE_BYTES = 2 << 20
CPUCLOCK_SCHED = 2
PAGE_REPORTING = Path("/sys/module/page_reporting/parameters/page_reporting_order")
NO_PAGE_REPORTING = 11
"""An order above that of the largest free block: no block is ever large enough to be reported to the host."""


def warm_memory(gib: int | None = None) -> int:
    """Touch free memory once, and return how many GiB; with None, as much as is free within bounds.

    On a virtual machine, the first touch of a page costs some 15 times a warm one. The system that runs first would pay
    for it, most of all in the page cache.
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
    """Within the block, keep a virtual machine from giving free pages back to its host, so that warm memory stays warm.

    Otherwise the page cache of a deleted topic is cold again within seconds, and the next system pays for it. Yields
    whether that is prevented; without such a kernel setting, or without write access to it, nothing is done.
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
    """Drop all files below the directory from the page cache. Return False where the system cannot do that."""
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
        # A dirty page stays in memory whatever is advised.
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
    """Return the user and system time of the processes since their start; a process that has ended counts nothing."""
    seconds = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            # The processor clock of a process, to the nanosecond: /proc counts in 10 ms.
            seconds += time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    return seconds


def largest_resident_mb(pids: Iterable[int]) -> float:
    """Return the resident memory in MB of the largest of the processes. 0.0 where there is no /proc."""
    return max(map(resident_mb, pids), default=0.0)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB; 0.0 if there is none."""
    try:
        return _field(Path(f"/proc/{pid}/status"), "VmRSS") * 1024 / 1e6
    except OSError:
        return 0.0


def description() -> dict[str, str | int]:
    """Return the facts about the machine that a reader of the results needs."""
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
    """Return a number of a file with lines like `VmRSS:   1234 kB`; 0 where it has no such line."""
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
