"""An asyncio loop that lives in a simulated world: its clock does not wait, and its processes can stop at any moment.

Time, timers and network come to our code with its loop; so what runs for real runs here unchanged, and the same seed
gives the same run.
"""

import asyncio
import contextlib
import contextvars
import heapq
import inspect
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cordwood.chaos.sim.trace import Trace

_T = TypeVar("_T")

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
"""Whose code is running. What it starts, and whatever that starts, runs as the same process."""

STEPS_AT_ONE_TIME_MAX = 1_000_000
"""More callbacks than these without any time going by: somebody waits for himself."""
ROUNDING_S = 1e-9
"""A timer is this much late rather than early, whichever way a drifting clock is rounded."""


@dataclass(slots=True, eq=False)
class Process:
    """A process on a host. One that is dead runs not a line more: no `finally`, no callback. One that is paused waits.

    `clock_rate` is how fast its clock goes, against the world's.
    """

    host: str
    is_alive: bool = True
    is_paused: bool = False
    clock_rate: float = 1.0
    parked: deque[asyncio.Handle] = field(default_factory=deque)
    """What has come due while it was paused."""

    def context(self) -> Context:
        """What its code is to be run in."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where in memory it happens to be."""

    def __init__(self, work: Any, *, number: int, process: Process | None, **options: Any) -> None:
        self.number, self.process = number, process
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class _Step(asyncio.Handle):
    """asyncio's own asks its loop each time whether it is debugged, and nothing here is made more often than these."""

    __slots__ = ()

    def __init__(self, callback: Any, arguments: tuple[Any, ...], loop: "SimulatedLoop", context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, arguments, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _Timer(asyncio.TimerHandle):
    """Likewise. It does not count as scheduled, which is asyncio's word for its own heap."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, arguments: tuple[Any, ...], loop: "SimulatedLoop", context: Context
    ) -> None:
        self._callback, self._args, self._loop, self._context = callback, arguments, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, False


class SimulatedLoop(asyncio.BaseEventLoop):
    """Connections go where `network` says, once there is one (cordwood.chaos.sim.network).

    What happens is noted in `trace`, if there is one.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace
        self.passed_s = 0.0
        self.network: Any = None
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """By when they are due, and among equals in the order in which they were set."""
        self._timer_count = self._steps_at_this_time = 0
        self._task_count = 0
        self._tasks: dict[NumberedTask, None] = {}
        self.set_task_factory(self._start_task)

    def time(self) -> float:
        process = PROCESS.get()
        return self.passed_s if process is None else self.passed_s * process.clock_rate

    def call_soon(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        step = _Step(callback, arguments, self, contextvars.copy_context() if context is None else context)
        self._ready.append(step)
        return step

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        process: Process | None = context.get(PROCESS)
        if process is not None and process.clock_rate != 1.0:
            when = when / process.clock_rate + ROUNDING_S
        timer = _Timer(when, callback, arguments, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def pause(self, process: Process) -> None:
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """All that came due in the meantime is done at once."""
        process.is_paused = False
        self._ready.extend(process.parked)
        process.parked.clear()

    def abandon_tasks(self) -> None:
        """The end of the world. Whatever their `finally` still does, or fails to do, reaches nobody any more."""
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            assert inspect.iscoroutine(work), "only coroutines become tasks here"
            with contextlib.suppress(BaseException):
                work.close()

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Only the dead leave an asynchronous generator in its midst, and of them not a line runs more."""

    def _run_once(self) -> None:
        """Turns as asyncio's, without a selector and with a look at whose turn it is, until somebody stops the loop."""
        while not self._stopping:
            self._let_time_pass()
            self._take_turn()

    def _take_turn(self) -> None:
        ready = self._ready
        self._steps_at_this_time += len(ready)
        assert self._steps_at_this_time < STEPS_AT_ONE_TIME_MAX, f"time stands still at {self.passed_s} s: {ready[0]}"
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process: Process | None = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is None or (process.is_alive and not process.is_paused):
                handle._run()
            elif process.is_alive:
                process.parked.append(handle)

    def _let_time_pass(self) -> None:
        """Not before everything that is to be done now has been done, and then up to the next timer."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready:
            assert timers, "everyone waits and no timer is set"
            if timers[0][0] > self.passed_s:
                self.passed_s = timers[0][0]
                self._steps_at_this_time = 0
                if self.trace is not None:
                    self.trace.time_passed(self.passed_s)
        while timers and timers[0][0] <= self.passed_s:
            ready.append(heapq.heappop(timers)[2])

    def _start_task(self, _: asyncio.AbstractEventLoop, work: Any, **options: Any) -> NumberedTask:
        """Held on to until it ends, which the task of a dead process never does."""
        context: Context | None = options.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        self._task_count += 1
        task = NumberedTask(work, number=self._task_count, process=process, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: Any) -> None:
        self._tasks.pop(task, None)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, *, start_serving: bool = True, **_: Any
    ) -> Any:
        return self.network.listen(factory, host, port, start_serving)


def run(story: Coroutine[Any, Any, _T], trace: Trace | None = None) -> _T:
    """Run a story to its end, in no time. The processes that still run by then are left where they are."""
    loop = SimulatedLoop(trace)
    try:
        return loop.run_until_complete(story)
    finally:
        loop.abandon_tasks()
        loop.close()
