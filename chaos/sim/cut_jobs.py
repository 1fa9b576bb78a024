"""Jobs in worker threads that are interrupted at disk calls, so that the event loop runs between two of their changes.

A job has a real thread, which runs only while the simulation waits for it. A seed decides at which disk calls the job
is interrupted and for how long, so equal seeds give equal runs.
"""

import _thread
import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from cordwood.chaos.sim.faults import Died

CUTS_MAX = 20
"""The number of interruptions of one job. The rest of a long job then runs without one."""
CUT_MAX_S = 0.003
SHARES = (0.05, 0.3, 1.0)
"""The share of disk calls at which a job is interrupted: one of these for each job."""
KINDS = {
    "cordwood.replication.recovery": "recovery-cut",
    "cordwood.replication.scrubber": "scrub-cut",
    "cordwood.replication.truncation": "truncation-cut",
    "cordwood.replication.file_removal": "maintenance-cut",
    "cordwood.replication.log_cleaner": "cleaner-cut",
}
"""By the module of a job's function: the name under which its interruptions are counted."""
OTHER = "other-job-cut"

Ended = Callable[[Any, BaseException | None], None]
"""Called on the event loop with the result of a job, or with its error."""


class _Thread:
    """A thread that runs one job after another, and waits in between."""

    def __init__(self) -> None:
        self.job: _Job | None = None
        self._go, self._back = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        _thread.start_new_thread(self._run, ())

    def resume(self) -> None:
        """Let the thread run to the next interruption of its job, or to the job's end."""
        self._go.release()
        self._back.acquire()

    def park(self) -> None:
        """Wait, in the thread, for the next `resume`."""
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        while True:
            assert self.job is not None, "a thread is resumed for a job"
            self.job.run()
            self.job = None
            self.park()


_idle: list[_Thread] = []
"""Threads without a job, for the jobs to come: the start of a thread costs as much as several interruptions."""


class _Job:
    """One function in a thread."""

    def __init__(self, work: Callable[[], Any], kind: str, share: float, ended: Ended) -> None:
        self.kind, self.share, self.ended = kind, share, ended
        self.cuts = 0
        self.is_abandoned = self.is_over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work, self._context = work, contextvars.copy_context()
        self._thread = _idle.pop() if _idle else _Thread()
        self._thread.job = self

    def resume(self) -> None:
        """Let the job run to its next interruption, or to its end."""
        self._thread.resume()
        if self.is_over:
            _idle.append(self._thread)

    def park(self) -> None:
        """Wait, in the job's thread, for the next `resume`."""
        self._thread.park()

    def run(self) -> None:
        """Run the job from beginning to end, in its thread."""
        try:
            self.result = self._context.run(self._work)
        except BaseException as error:
            self.error = error
        self.is_over = True


class CutJobs:
    """The interrupted jobs of one host. `at_disk_call` has to be called at each disk call of its processes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: random.Random, share: float, counted: Counter[str] | None = None
    ) -> None:
        """`share` is the share of jobs that run in threads. Interruptions are counted in `counted`."""
        self._loop, self._rng, self._share = loop, rng, share
        self._counted = Counter[str]() if counted is None else counted
        self._parked: dict[_Job, None] = {}
        self._running: _Job | None = None

    def takes_next(self) -> bool:
        """Return whether the next job is to run here."""
        return self._share > 0 and self._rng.random() < self._share

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: Ended) -> None:
        """Start a job. `ended` is not called if the process dies first."""
        kind = KINDS.get(getattr(function, "__module__", ""), OTHER)
        self._go_on(_Job(lambda: function(*arguments), kind, self._rng.choice(SHARES), ended))

    def at_disk_call(self) -> None:
        """Interrupt the job that makes this call, perhaps. Raises Died in a job of a dead process."""
        job = self._running
        if job is None:
            return
        if job.is_abandoned:
            raise Died
        if job.cuts < CUTS_MAX and self._rng.random() < job.share:
            job.cuts += 1
            self._counted[job.kind] += 1
            self._parked[job] = None
            self._loop.call_later(self._rng.uniform(0.0, CUT_MAX_S), self._go_on, job)
            job.park()
            if job.is_abandoned:
                raise Died

    def abandon(self) -> None:
        """End all interrupted jobs: their process is dead, and no further disk call of them has an effect."""
        while self._parked:
            job, _ = self._parked.popitem()
            job.is_abandoned = True
            self._resume(job)

    def _go_on(self, job: _Job) -> None:
        self._parked.pop(job, None)
        self._resume(job)
        if job.is_over and not isinstance(job.error, Died):
            job.ended(job.result, job.error)

    def _resume(self, job: _Job) -> None:
        before, self._running = self._running, job
        job.resume()
        self._running = before
