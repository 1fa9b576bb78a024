"""The simulated environment of a broker besides its loop: worker threads and syncers with disk latency."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from cordwood.chaos.sim.cut_jobs import CutJobs
from cordwood.replication.syncers import Failure, OnSynced
from cordwood.storage.disk import Syncable

Delay = Callable[[], float]
"""Returns the seconds that the next disk operation takes."""


class SimulatedThreads:
    """Worker threads: a function runs some time after its call and, as in a thread, cannot be cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: Delay, cut_jobs: CutJobs) -> None:
        self._loop, self._delay, self._cut_jobs = loop, delay, cut_jobs

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()

        def ended(result: Any, error: BaseException | None) -> None:
            if error is None:
                self._loop.call_later(self._delay(), _succeed, answer, result)
            else:
                self._loop.call_later(self._delay(), _fail, answer, error)

        def work() -> None:
            if self._cut_jobs.takes_next():
                self._cut_jobs.run(function, arguments, ended)
                return
            try:
                result = function(*arguments)
            except Exception as error:
                ended(None, error)
            else:
                ended(result, None)

        self._loop.call_later(self._delay(), work)
        return await answer


class SimulatedSyncer:
    """A syncer with a delay per group of files. A write after the start of a sync may or may not be covered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: Delay) -> None:
        self._loop, self._delay = loop, delay

    def sync(self, files: Sequence[Syncable], done: OnSynced) -> None:
        self._loop.call_later(self._delay(), self._sync, files, done)

    def close(self) -> None:
        """Do nothing; there are no resources."""

    def _sync(self, files: Sequence[Syncable], done: OnSynced) -> None:
        failures: list[Failure] = []
        for file in files:
            try:
                file.sync()
            except OSError as error:
                failures.append((file, error))
        self._loop.call_later(self._delay(), done, failures)


class DiskSpeed:
    """The latency of one disk operation. `factor` is raised by the slow-disk fault."""

    def __init__(self, rng: random.Random, usual_s: tuple[float, float]) -> None:
        self._rng, self._usual_s = rng, usual_s
        self.factor = 1.0

    def __call__(self) -> float:
        return self._rng.uniform(*self._usual_s) * self.factor


def _succeed(answer: "asyncio.Future[Any]", result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
