"""Counts of the calls and system calls of the brokers in a simulated world, without a change to their code.

The interpreter reports every call to a profile function. Calls of the brokers' own code, and calls that it makes, are
counted; a call into the simulated disk or network stands for the system call that the real one makes. The simulator,
the event loop and the clients are left out: in a real broker the loop is uvloop, which is C.
"""

import random
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from cordwood.chaos.sim.connection import End
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.environment import SimulatedSyncer
from cordwood.chaos.sim.loop import PROCESS
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.metadata.raft.connection import RaftConnection

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / package}/" for package in ("cluster", "replication", "storage"))
NOT_THEIRS = (
    *(f"{ROOT / package}/" for package in ("chaos", "bench", "tests")),
    f"{Path(random.__file__).parent}/asyncio/",
)
"""Code outside the brokers. A frame of other files, such as a generated dataclass method, counts as its caller's."""

LARGE_BYTES = 1024

Size = Callable[[dict[str, Any]], int]
"""The number of bytes that a call moves, by its arguments."""


class CallCounter:
    """A context manager that counts the brokers' calls in `counts`, by name.

    With `with_memory` it counts memory alone, which is slower: every block that the brokers' code takes, as far as the
    memory in use rises between two calls. A block that is taken and freed between the same two calls shows in the peak.
    """

    def __init__(self, *, with_memory: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._with_memory = with_memory
        self._is_ours: dict[CodeType, bool | None] = {}
        self._seams = _seams()
        self._was_ours, self._bytes = False, 0

    def __enter__(self) -> "CallCounter":
        if self._with_memory:
            tracemalloc.start()
            self._bytes = tracemalloc.get_traced_memory()[0]
            sys.setprofile(self._weigh)
        else:
            sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        tracemalloc.stop()

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            if self._belongs(frame):
                self.counts["Python calls"] += 1
            if (seam := self._seams.get(frame.f_code)) is not None and _is_in_broker():
                name, what, size = seam
                # The simulated disk's cached read calls its own read: that is one system call.
                if frame.f_back is None or frame.f_back.f_code not in self._seams:
                    self.counts[name] += 1
                if what:
                    self.counts[what] += size(frame.f_locals)
        elif event == "c_call" and self._belongs(frame):
            self.counts["C calls"] += 1

    def _weigh(self, frame: FrameType, event: str, _: Any) -> None:
        taken = tracemalloc.get_traced_memory()[1] - self._bytes
        if event == "call":
            # Without a profiler no frame becomes an object.
            taken -= sys.getsizeof(frame)
        if self._was_ours and taken > 0:
            self.counts["bytes allocated"] += taken
            if taken >= LARGE_BYTES:
                self.counts["bytes in large blocks"] += taken
                self.counts["large blocks"] += 1
        running = frame.f_back if event == "return" else frame
        self._was_ours = running is not None and self._belongs(running)
        self._bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()

    def _belongs(self, frame: FrameType) -> bool:
        """Return whether a frame is of the brokers' code, or called by it."""
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code not in self._is_ours:
                self._is_ours[code] = _judged(code.co_filename)
            if (verdict := self._is_ours[code]) is not None:
                return verdict
            at = at.f_back
        return False


def _judged(filename: str) -> bool | None:
    """Return whether a file is the brokers' code; None where it depends on the caller."""
    path = str(Path(filename).resolve())
    return True if path.startswith(OURS) else False if path.startswith(NOT_THEIRS) else None


def _is_in_broker() -> bool:
    process = PROCESS.get()
    return process is not None and process.host.startswith("broker-")


def _seams() -> dict[CodeType, tuple[str, str, Size]]:
    """Return the system call and the byte counter of each function that stands for a system call."""
    scratch = SimulatedDisk(random.Random(0))
    file, directory = type(scratch.open("/f", create=True)), type(scratch.open_directory("/"))
    found: list[tuple[Callable[..., Any], str, str, Size]] = [
        (file.pwrite, "pwritev", "bytes written", lambda given: sum(map(len, given["pieces"]))),
        (file.pread, "pread", "bytes read", lambda given: int(given["length"])),
        (file.pread_cached, "preadv", "", _nothing),
        (file.sync, "fdatasync", "", _nothing),
        (file.preallocate, "fallocate", "", _nothing),
        (file.truncate, "ftruncate", "", _nothing),
        (file.size, "fstat", "", _nothing),
        (directory.sync, "fsync of a directory", "", _nothing),
        (SimulatedDisk.open, "open", "", _nothing),
        (SimulatedDisk.rename, "rename", "", _nothing),
        (SimulatedDisk.remove, "unlink", "", _nothing),
        (SimulatedDisk.free_bytes, "statvfs", "", _nothing),
        (SimulatedSyncer.sync, "io_submit", "files synced", lambda given: len(given["files"])),
        (End.write, "send", "bytes sent", lambda given: len(given["data"])),
        (Connection.buffer_updated, "recv", "bytes received", lambda given: int(given["count"])),
        (RaftConnection.data_received, "recv", "bytes received", lambda given: len(given["data"])),
    ]
    return {function.__code__: (name, what, size) for function, name, what, size in found}


def _nothing(_: dict[str, Any]) -> int:
    return 0
