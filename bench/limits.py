"""Limits of the machine without a broker: its disk's write, read and flush rates, and the rate of loopback."""

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

DISK_WRITE, DISK_READ, LOOPBACK = "disk write", "disk read", "loopback"
FLUSHES, FLUSH_P50, FLUSH_P99 = "disk flushes", "one flush", "one flush, p99"
UNITS = {DISK_WRITE: "MB/s", DISK_READ: "MB/s", LOOPBACK: "MB/s", FLUSHES: "1/s", FLUSH_P50: "ms", FLUSH_P99: "ms"}
SMALL_BYTES = 4096
# Many disks are fastest with appends larger than any broker's. The limit is the best of these sizes.
LARGE_BYTES = (1 << 20, 16 << 20)
SECONDS_EACH = 1.2
FILE_BYTES_MAX = 2 << 30
PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class MachineLimits:
    """Each limit by name, in UNITS, measured once a round: the rate of a shared disk varies."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float | None:
        """Return the median of a limit, None where it was not measured."""
        return statistics.median(self.values[name]) if self.values.get(name) else None

    def measure(self, directory: Path, seconds_each: float = SECONDS_EACH) -> None:
        """Measure each limit once more, with a temporary file in `directory`."""
        for name, value in {**disk(directory, seconds_each), LOOPBACK: loopback(directory, seconds_each)}.items():
            self.values.setdefault(name, []).append(value)


def disk(directory: Path, seconds_each: float) -> dict[str, float]:
    """Measure appends that are flushed one by one, and a read of data that is not in this system's page cache."""
    path = directory / "disk-limit"
    try:
        small = _append(path, SMALL_BYTES, seconds_each)
        large = [(size, _append(path, size, seconds_each)) for size in LARGE_BYTES]
        read = _read_back(path, seconds_each)
    finally:
        path.unlink(missing_ok=True)
    found = {
        FLUSHES: len(small) / sum(small),
        FLUSH_P50: sorted(small)[len(small) // 2] * 1e3,
        FLUSH_P99: sorted(small)[int(0.99 * (len(small) - 1))] * 1e3,
        DISK_WRITE: max(len(times) * size / 1e6 / sum(times) for size, times in large),
    }
    return found if read is None else found | {DISK_READ: read}


def _append(path: Path, size: int, seconds: float) -> list[float]:
    """Return the seconds of each append of `size` bytes with its fdatasync."""
    block = os.urandom(size)
    # macOS has no fdatasync; fsync is the nearest call there.
    flush: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        begin = time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds and len(times) * size < FILE_BYTES_MAX:
            os.write(descriptor, block)
            flush(descriptor)
            times.append(time.perf_counter() - now)
    finally:
        os.close(descriptor)
    return times


def _read_back(path: Path, seconds: float) -> float | None:
    """Return the MB/s of a read of the file from its start. None where it cannot be dropped from the page cache."""
    if not hasattr(os, "posix_fadvise"):
        return None
    piece = bytearray(PIECE_BYTES)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds and (count := os.readv(descriptor, [piece])):
            done += count
        return done / 1e6 / (time.perf_counter() - begin)
    finally:
        os.close(descriptor)


def loopback(directory: Path, seconds: float) -> float:
    """Return the MB/s of sendfile from a file in the page cache over loopback to a receiver that discards the bytes."""
    path = directory / "loopback-limit"
    path.write_bytes(os.urandom(PIECE_BYTES) * 64)
    try:
        with path.open("rb") as file, socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname())
            receiver, _ = server.accept()
            with receiver:
                # Both calls release the interpreter's lock, so threads serve as well as processes here.
                thread = threading.Thread(target=_send, args=(sender, file.fileno(), seconds))
                begin = time.perf_counter()
                thread.start()
                piece = bytearray(PIECE_BYTES)
                done = 0
                while count := receiver.recv_into(piece):
                    done += count
                taken = time.perf_counter() - begin
                thread.join()
    finally:
        path.unlink()
    return done / 1e6 / taken


def _send(sender: socket.socket, file: int, seconds: float) -> None:
    end = time.perf_counter() + seconds
    offset = 0
    with sender:
        while time.perf_counter() < end:
            sent = os.sendfile(sender.fileno(), file, offset, PIECE_BYTES)
            offset = offset + sent if sent else 0


def place(directory: Path) -> str:
    """Return the device of the directory: `/dev/vda (ext4), mounted at /`; otherwise the directory itself."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return str(directory)
    inside = os.path.realpath(directory)
    best, described = "", str(directory)
    for mount in mounts:
        # 36 35 98:0 /root /mount rw,noatime - ext3 /dev/root rw
        before, _, after = mount.partition(" - ")
        point, (kind, device, *_) = before.split()[4], after.split()
        if len(point) >= len(best) and os.path.commonpath([point, inside]) == point:
            best, described = point, f"{device} ({kind}), mounted at {point}"
    return described
