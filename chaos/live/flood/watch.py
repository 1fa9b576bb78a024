"""What brokers do while they are flooded: memory, exits, tracebacks in their logs, and what the machine withheld."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cordwood.chaos.live.flood.waits import MachineTime

SAMPLE_S = 0.05
BYTES_PER_MB = 1e6
NANOSECONDS = 1e9
TRACEBACKS_SHOWN = 3
TRACEBACK_CHARS_MAX = 600
TRACEBACK = "Traceback"


class WatchedProcess(Protocol):
    """A broker in a process of its own."""

    @property
    def running_pid(self) -> int | None:
        """Of the process; None while there is none."""

    @property
    def address(self) -> str:
        """host:port, as clients want it."""

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""

    def last_words(self) -> str:
        """The end of what it printed."""

    def output(self) -> str:
        """All that it printed."""


class BrokerWatch:
    """Samples the brokers from a thread of its own, from `start` to `stop`; they may be restarted meanwhile."""

    def __init__(self, brokers: Sequence[WatchedProcess], place: Path) -> None:
        """`place` is a directory on the same disk as the brokers' data."""
        self.machine = MachineTime()
        self.baseline_mb: dict[int, float] = {}
        """Resident memory of each process when it was warm."""
        self.peak_mb: dict[int, float] = {}
        """The largest since."""
        self.peak_s = 0.0
        """When some broker last grew beyond all it had been, in seconds of the monotonic clock."""
        self.last_mb: dict[int, float] = {}
        self._brokers, self._place = brokers, place
        self._starved_s = [0.0] * len(brokers)
        self._clients_starved_s = 0.0
        self._withheld_s: dict[int, float] = {}
        """From each thread, when it was looked at last."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Sample from now on: before any client waits, or the machine's part in its wait is not known."""
        self.take_baseline()
        self._thread.start()

    def take_baseline(self) -> None:
        """Compare later memory with that of this moment."""
        pids = (broker.running_pid for broker in self._brokers)
        self.baseline_mb = {pid: resident_mb(pid) for pid in pids if pid is not None}
        self.peak_mb, self.last_mb = dict(self.baseline_mb), dict(self.baseline_mb)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def growth_mb(self) -> float:
        """By how much some broker was larger than its baseline, at the worst moment."""
        return max(self.peak_mb[pid] - self.baseline_mb[pid] for pid in self.baseline_mb)

    @property
    def kept_mb(self) -> float:
        """By how much some broker is larger than its baseline now."""
        return max(self.last_mb[pid] - self.baseline_mb[pid] for pid in self.baseline_mb)

    def exits(self) -> list[str]:
        """A sentence for each broker that ended by itself."""
        ended = [broker for broker in self._brokers if broker.has_ended]
        return [f"the broker at {broker.address} exited:\n{broker.last_words()}" for broker in ended]

    def tracebacks(self) -> list[str]:
        """The first lines in the brokers' logs that have one."""
        return [
            f"traceback in a log: {line[-TRACEBACK_CHARS_MAX:]}"
            for broker in self._brokers
            for line in broker.output().splitlines()
            if TRACEBACK in line
        ][:TRACEBACKS_SHOWN]

    def _run(self) -> None:
        with (self._place / "probe").open("wb", buffering=0) as probe:
            due_s = time.monotonic()
            while not self._stopping.is_set():
                due_s = max(due_s + SAMPLE_S, time.monotonic())
                time.sleep(max(due_s - time.monotonic(), 0.0))
                # It grows, as a log does: bytes written in place would need no commit of the file system's journal.
                probe.write(b"probe")
                os.fdatasync(probe.fileno())
                now_s = time.monotonic()
                self._sample(now_s, now_s - due_s)

    def _sample(self, now_s: float, probe_s: float) -> None:
        for number, broker in enumerate(self._brokers):
            pid = broker.running_pid
            if pid is None:
                continue
            try:
                self._see_memory(pid, now_s)
                self._starved_s[number] += self._more_withheld_s(pid, pid)
            except ProcessLookupError:
                # It has just ended; `exits` says so where it ended by itself.
                continue
        self._clients_starved_s += max(self._more_withheld_s(os.getpid(), thread) for thread in own_threads())
        self.machine.add(now_s, tuple(self._starved_s), self._clients_starved_s, probe_s)

    def _more_withheld_s(self, pid: int, thread: int) -> float:
        """Since the last sample. Raises ProcessLookupError."""
        sum_s = withheld_s(pid, thread)
        before_s = self._withheld_s.get(thread, sum_s)
        self._withheld_s[thread] = sum_s
        return max(sum_s - before_s, 0.0)

    def _see_memory(self, pid: int, now_s: float) -> None:
        self.last_mb[pid] = resident_mb(pid)
        if self.last_mb[pid] > self.peak_mb.get(pid, 0.0):
            self.peak_mb[pid], self.peak_s = self.last_mb[pid], now_s


def resident_mb(pid: int) -> float:
    """Memory that a process has in use. Raises ProcessLookupError where it has ended, or never was."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / BYTES_PER_MB
    except FileNotFoundError:
        pass
    raise ProcessLookupError(f"no process {pid}")


def own_threads() -> list[int]:
    """The threads of this process."""
    return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]


def withheld_s(pid: int, thread: int) -> float:
    """For how long a thread has waited for a processor; of a process, the first thread has its number.

    The second number of schedstat (Linux, Documentation/scheduler/sched-stats.rst); 0 where the kernel does not count,
    or where the thread has just ended. Raises ProcessLookupError where the process has.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / NANOSECONDS
    except (FileNotFoundError, ProcessLookupError):
        if Path(f"/proc/{pid}").exists():
            return 0.0
        raise ProcessLookupError(f"no process {pid}") from None
