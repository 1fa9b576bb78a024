"""An asyncio loop that lives in a simulated world: its clock does not wait, and its processes can die at any moment.

Time, timers and network come to our code with its loop; so what runs for real runs here unchanged, and the same seed
gives the same run.
"""

import asyncio
import contextvars
import inspect
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
"""Whose code is running. What it starts, and whatever that starts, runs as the same process."""


@dataclass(slots=True, eq=False)
class Process:
    """A process on a host. One that is dead runs not a line more: no `finally`, no callback."""

    host: str
    is_alive: bool = True

    def context(self) -> Context:
        """What its code is to be run in."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context


class _Timers(selectors.DefaultSelector):
    """There is nothing to wait for but timers, whose time comes at once."""

    loop: "SimulatedLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everyone waits and no timer is set"
        self.loop.passed_s += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Connections go where `network` says, once there is one (cordwood.chaos.sim.network)."""

    def __init__(self) -> None:
        timers = _Timers()
        timers.loop = self
        self.passed_s = 0.0
        self.network: Any = None
        super().__init__(timers)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.set_task_factory(self._start_task)

    def time(self) -> float:
        return self.passed_s

    def abandon_tasks(self) -> None:
        """Of a dead process not even the end of a task may run, so nothing can be cancelled."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()

    def call_soon(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(_while_alive(callback, context), *arguments, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, _while_alive(callback, context), *arguments, context=context)

    def _start_task(self, _: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """Held on to until it ends, which the task of a dead process never does."""
        task = asyncio.Task(work, loop=self, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return self.network.listen(factory, host, port)


def run(story: Coroutine[Any, Any, _T]) -> _T:
    """Run a story to its end, in no time. The processes that still run by then are left where they are."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(story)
    finally:
        loop.abandon_tasks()
        loop.close()


def _while_alive(callback: Callable[..., object], context: Context | None) -> Callable[..., object]:
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is None:
        return callback

    def call(*arguments: Any) -> None:
        if process.is_alive:
            callback(*arguments)

    return call
