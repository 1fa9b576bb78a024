"""Background tasks of one owner: cancelled together, and loops that continue after an exception in a round."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from cordwood.storage.steps import Steps

PAUSE_S, PAUSE_MAX_S = 0.5, 30.0
"""Backoff after a round that failed: twice as long each time, until one succeeds."""

CONTAINED = "contained"
"""Key of an exception handler's context: the error is handled, and nothing else has to end for it."""

RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a function that blocks on the disk in a thread, so that the event loop goes on."""

_ResultT = TypeVar("_ResultT")


def report(message: str, error: BaseException, *, is_contained: bool = True) -> None:
    """Pass an error to the event loop's exception handler. A contained one ends nothing else."""
    context = {"message": message, "exception": error, **({CONTAINED: True} if is_contained else {})}
    asyncio.get_running_loop().call_exception_handler(context)


async def spread(steps: Steps[_ResultT]) -> _ResultT:
    """Run the steps, each in another iteration of the event loop, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _ResultT = end.value
            return result
        await asyncio.sleep(0)


async def finished(work: Awaitable[_ResultT]) -> _ResultT:
    """Return the result of work in a thread. A cancellation is raised once the work has ended."""
    under_way = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        await asyncio.wait((under_way,))
        raise


class Tasks:
    """Tasks of one owner. An exception in one task is reported, and does not affect the others."""

    def __init__(self, *, are_contained: bool = True) -> None:
        """Unless they `are_contained`, an AssertionError of a task stops the broker."""
        self._running: set[asyncio.Task[Any]] = set()
        self._are_contained = are_contained

    def spawn(self, work: Coroutine[Any, Any, _ResultT], name: str | None = None) -> "asyncio.Task[_ResultT]":
        """Run `work` as a task in the background."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def repeat(self, step: Callable[[], Awaitable[None]], name: str) -> "asyncio.Task[None]":
        """Await `step` again and again, until `close`. `step` sets its own pace."""
        return self.spawn(_repeated(step, name), name)

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            report(f"the task {task.get_name()!r} failed", error, is_contained=self._are_contained)


async def _repeated(step: Callable[[], Awaitable[None]], name: str) -> None:
    pause_s = PAUSE_S
    while True:
        try:
            await step()
        except Exception as error:
            report(f"a run of {name!r} failed: the next one is in {pause_s:g} s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        else:
            pause_s = PAUSE_S
