"""What the disk itself can do: appends of one size, each followed by an fdatasync, with nothing else around."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SIZES = (4096, 1 << 20)
SECONDS_EACH = 1.5
FILE_BYTES_MAX = 2 << 30


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """The pace of appends of `append_bytes` that are flushed one by one."""

    append_bytes: int
    appends_per_s: float
    mb_per_s: float
    median_ms: float


def measure(directory: Path, seconds_each: float = SECONDS_EACH) -> list[DiskLimit]:
    """Measure each of SIZES in a file of its own there, which is removed again."""
    return [_measure(directory / "disk-limit", size, seconds_each) for size in SIZES]


def _measure(path: Path, size: int, seconds: float) -> DiskLimit:
    block = os.urandom(size)
    # macOS has no fdatasync; its fsync is the nearest there is.
    flush: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        begin = time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds and len(times) * size < FILE_BYTES_MAX:
            os.write(descriptor, block)
            flush(descriptor)
            times.append(time.perf_counter() - now)
        taken = time.perf_counter() - begin
    finally:
        os.close(descriptor)
        path.unlink()
    return DiskLimit(size, len(times) / taken, len(times) * size / 1e6 / taken, sorted(times)[len(times) // 2] * 1e3)
