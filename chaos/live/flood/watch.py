"""Observation of brokers during a flood: memory, exits, tracebacks, and time that the machine withheld."""

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
    """A broker in its own process."""

    @property
    def running_pid(self) -> int | None:
        """The process id; None while there is no process."""

    @property
    def address(self) -> str:
        """host:port, as clients take it."""

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself."""

    def last_words(self) -> str:
        """Return the last lines of its output."""

    def output(self) -> str:
        """Return all output."""


class BrokerWatch:
    """A sampler of the brokers in a thread, from `start` to `stop`; brokers may be restarted meanwhile."""

    def __init__(self, brokers: Sequence[WatchedProcess], place: Path) -> None:
        """`place` is a directory on the same disk as the brokers' data."""
        self.machine = MachineTime()
        self.baseline_mb: dict[int, float] = {}
        """Resident memory of each process at the last baseline."""
        self.peak_mb: dict[int, float] = {}
        """The largest resident memory of each process since the baseline."""
        self.peak_s = 0.0
        """The time of the last new maximum of any broker, in seconds of the monotonic clock."""
        self.last_mb: dict[int, float] = {}
        self._brokers, self._place = brokers, place
        self._starved_s = [0.0] * len(brokers)
        self._clients_starved_s = 0.0
        self._withheld_s: dict[int, float] = {}
        """The withheld time of each thread at its last sample."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start sampling. Call this before any client waits, or the machine's share of the wait is unknown."""
        self.take_baseline()
        self._thread.start()

    def take_baseline(self) -> None:
        """Take the current memory as the baseline of later samples."""
        pids = (broker.running_pid for broker in self._brokers)
        self.baseline_mb = {pid: resident_mb(pid) for pid in pids if pid is not None}
        self.peak_mb, self.last_mb = dict(self.baseline_mb), dict(self.baseline_mb)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def growth_mb(self) -> float:
        """The largest growth of a broker over its baseline so far."""
        return max(self.peak_mb[pid] - self.baseline_mb[pid] for pid in self.baseline_mb)

    @property
    def kept_mb(self) -> float:
        """The largest current growth of a broker over its baseline."""
        return max(self.last_mb[pid] - self.baseline_mb[pid] for pid in self.baseline_mb)

    def exits(self) -> list[str]:
        """Return a sentence for each broker that ended by itself."""
        ended = [broker for broker in self._brokers if broker.has_ended]
        return [f"the broker at {broker.address} exited:\n{broker.last_words()}" for broker in ended]

    def tracebacks(self) -> list[str]:
        """Return the first lines with a traceback in the brokers' logs."""
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
                # The probe appends, as a log does: a write in place would need no commit of the file system's journal.
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
                # The process has just ended; `exits` reports unexpected exits.
                continue
        self._clients_starved_s += max(self._more_withheld_s(os.getpid(), thread) for thread in own_threads())
        self.machine.add(now_s, tuple(self._starved_s), self._clients_starved_s, probe_s)

    def _more_withheld_s(self, pid: int, thread: int) -> float:
        """Return the seconds since the last sample. Raises ProcessLookupError."""
        sum_s = withheld_s(pid, thread)
        before_s = self._withheld_s.get(thread, sum_s)
        self._withheld_s[thread] = sum_s
        return max(sum_s - before_s, 0.0)

    def _see_memory(self, pid: int, now_s: float) -> None:
        self.last_mb[pid] = resident_mb(pid)
        if self.last_mb[pid] > self.peak_mb.get(pid, 0.0):
            self.peak_mb[pid], self.peak_s = self.last_mb[pid], now_s


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process. Raises ProcessLookupError where there is no such process."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / BYTES_PER_MB
    except FileNotFoundError:
        pass
    raise ProcessLookupError(f"no process {pid}")


def own_threads() -> list[int]:
    """Return the thread ids of this process."""
    return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]


def withheld_s(pid: int, thread: int) -> float:
    """Return the seconds that a thread has waited for a processor. A process id names the process's first thread.

    The second number of schedstat (Linux, Documentation/scheduler/sched-stats.rst); 0 where the kernel does not count,
    or where the thread has just ended. Raises ProcessLookupError where the process has.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / NANOSECONDS
    except (FileNotFoundError, ProcessLookupError):
        if Path(f"/proc/{pid}").exists():
            return 0.0
        raise ProcessLookupError(f"no process {pid}") from None
