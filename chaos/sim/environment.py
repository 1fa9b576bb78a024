"""The simulated form of what a broker has beside its loop: work off the loop that takes its time, and a slow syncer."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from cordwood.replication.syncers import Done, Failure
from cordwood.storage.disk import Syncable

Delay = Callable[[], float]
"""Seconds that the disk takes for what is next."""


class SimulatedThreads:
    """Runs a function somewhere between the call and its answer. Like a thread, it is not stopped on the way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: Delay) -> None:
        self._loop, self._delay = loop, delay

    async def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()

        def work() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                self._loop.call_later(self._delay(), _fail, answer, error)
            else:
                self._loop.call_later(self._delay(), _succeed, answer, result)

        self._loop.call_later(self._delay(), work)
        return await answer


class SimulatedSyncer:
    """A disk that takes a while for each group. What is written after it began may or may not be covered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: Delay) -> None:
        self._loop, self._delay = loop, delay

    def sync(self, files: Sequence[Syncable], done: Done) -> None:
        self._loop.call_later(self._delay(), self._sync, files, done)

    def close(self) -> None:
        """Nothing is held."""

    def _sync(self, files: Sequence[Syncable], done: Done) -> None:
        failures: list[Failure] = []
        for file in files:
            try:
                file.sync()
            except OSError as error:
                failures.append((file, error))
        self._loop.call_later(self._delay(), done, failures)


class DiskSpeed:
    """How long one step of a disk takes. `slow_down` is a fault: a disk that everybody waits for."""

    def __init__(self, rng: random.Random, usual_s: tuple[float, float]) -> None:
        self._rng, self._usual_s = rng, usual_s
        self.factor = 1.0

    def __call__(self) -> float:
        return self._rng.uniform(*self._usual_s) * self.factor


def _succeed(answer: "asyncio.Future[Any]", result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
