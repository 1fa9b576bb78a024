"""A deterministic asyncio event loop: simulated time, and processes that can be killed or paused at any point.

Time, timers and network reach the code under test through its loop, so that production code runs unchanged and the same
seed gives the same run.
"""

import asyncio
import contextlib
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeVar

from cordwood.chaos.sim.trace import Trace

_T = TypeVar("_T")

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
"""The process whose code is running. Tasks and callbacks inherit the process of the code that starts them."""

STEPS_AT_ONE_TIME_MAX = 1_000_000
"""The limit of callbacks at one simulated time; more of them mean a busy loop."""
TASKS_MAX = 1_000
ROUNDING_S = 1e-9
"""The delay of a timer that keeps a drifting clock, rounded either way, from firing it early."""


@dataclass(slots=True, eq=False)
class Process:
    """A process on a host. A dead process runs no further line: no `finally`, no callback. A paused process waits.

    `clock_rate` is the speed of its clock relative to simulated time.
    """

    host: str
    is_alive: bool = True
    is_paused: bool = False
    clock_rate: float = 1.0
    parked: "deque[SimulatedHandle]" = field(default_factory=deque)
    """Callbacks that came due during the pause."""

    def context(self) -> Context:
        """Return the context in which the process's code runs."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context


class NumberedTask(asyncio.Task[Any]):
    """A task with a deterministic hash, so that its place in a set does not depend on its memory address."""

    def __init__(self, work: Any, *, number: int, process: Process | None, **options: Any) -> None:
        self.number, self.process = number, process
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


_WHEN, _NUMBER, _CALLBACK, _ARGUMENTS, _CONTEXT, _PROCESS = range(6)


class SimulatedHandle(list[Any]):
    """A callback of a process, due in the next iteration or at a time: asyncio's handles with only the fields used.

    It is a list of the fields above, which Python creates, and compares in a heap, twice as fast as an object with
    attributes. Timers have a number of their own, so that equal times keep the order of creation. The callback is None
    once the handle is cancelled.
    """

    __slots__ = ()

    @property
    def callback(self) -> Any:
        return self[_CALLBACK]

    @property
    def context(self) -> Context:
        context: Context = self[_CONTEXT]
        return context

    def cancel(self) -> None:
        self[_CALLBACK], self[_ARGUMENTS] = None, ()

    def cancelled(self) -> bool:
        return self[_CALLBACK] is None

    def when(self) -> float:
        when: float = self[_WHEN]
        return when


class SimulatedLoop(asyncio.BaseEventLoop):
    """The simulated event loop. Connections go through `network` once it is set (cordwood.chaos.sim.network).

    Events are added to `trace`, if there is one.
    """

    _ready: deque[SimulatedHandle]
    _stopping: bool

    def __init__(self, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace
        self.passed_s = 0.0
        self.network: Any = None
        self._timers: list[SimulatedHandle] = []
        """A heap by due time."""
        self._timer_count = self._steps_at_this_time = 0
        self._task_count = 0
        self._tasks: list[NumberedTask] = []
        """Tasks in order, some of which have ended. That of a dead process never ends, and is kept until the end."""
        self._tasks_max = TASKS_MAX
        """The number of tasks from which on those that have ended are dropped."""
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.on_step: Callable[[], None] | None = None
        """Called after every callback, outside any process."""
        self.at_end: list[Callable[[], None]] = []
        """Called at the end of the run, before all tasks are abandoned."""

    def time(self) -> float:
        process = PROCESS.get()
        return self.passed_s if process is None else self.passed_s * process.clock_rate

    get_debug = staticmethod(bool)
    """Return False. Each future and task asks, and a built-in function answers faster than asyncio's method."""

    def call_soon(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            step = SimulatedHandle((0.0, 0, callback, arguments, copy_context(), PROCESS.get()))
        else:
            step = SimulatedHandle((0.0, 0, callback, arguments, context, context.get(PROCESS)))
        self._ready.append(step)
        return step

    def call_now(self, callback: Callable[[], object], process: Process, context: Context) -> None:
        """Run a callback of a process as a part of the current step: cheaper than in a step of its own."""
        if not process.is_alive:
            return
        if process.is_paused:
            process.parked.append(SimulatedHandle((0.0, 0, callback, (), context, process)))
            return
        try:
            context.run(callback)
        # Of any class, as for a step of its own: the error must not end the sender's step.
        except BaseException as error:
            self._failed(SimulatedHandle((0.0, 0, callback, (), context, process)), error)

    def call_outside(self, when: float, callback: Any, *arguments: Any, context: Context) -> None:
        """Run a callback at a simulated time, outside any process: `context` has none."""
        self._timer_count = number = self._timer_count + 1
        heappush(self._timers, SimulatedHandle((when, number, callback, arguments, context, None)))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> SimulatedHandle:
        if context is not None:
            return self.call_at(self.time() + delay, callback, *arguments, context=context)
        process = PROCESS.get()
        if process is None or process.clock_rate == 1.0:
            when = self.passed_s + delay
        else:
            when = (self.passed_s * process.clock_rate + delay) / process.clock_rate + ROUNDING_S
        return self._add_timer(when, callback, arguments, copy_context(), process)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            context, process = copy_context(), PROCESS.get()
        else:
            process = context.get(PROCESS)
        if process is not None and process.clock_rate != 1.0:
            when = when / process.clock_rate + ROUNDING_S
        return self._add_timer(when, callback, arguments, context, process)

    def _add_timer(
        self, when: float, callback: Any, arguments: tuple[Any, ...], context: Context, process: Process | None
    ) -> SimulatedHandle:
        self._timer_count = number = self._timer_count + 1
        timer = SimulatedHandle((when, number, callback, arguments, context, process))
        heappush(self._timers, timer)
        return timer

    def create_task(  # type: ignore[override]
        self, work: Any, *, name: str | None = None, context: Context | None = None
    ) -> NumberedTask:
        process = PROCESS.get() if context is None else context.get(PROCESS)
        number = self._task_count = self._task_count + 1
        task = NumberedTask(work, number=number, process=process, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._tasks_max = max(TASKS_MAX, 2 * len(self._tasks))
        return task

    def pause(self, process: Process) -> None:
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Resume a process. All callbacks that came due during the pause become ready."""
        process.is_paused = False
        self._ready.extend(process.parked)
        process.parked.clear()

    def abandon_tasks(self) -> None:
        """Close the coroutines of all tasks at the end of the run. Errors of their `finally` blocks are dropped."""
        for end in self.at_end:
            end()
        for task in self._tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            assert inspect.iscoroutine(work), "only coroutines become tasks here"
            with contextlib.suppress(BaseException):
                work.close()

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Record no asynchronous generators: they are not shut down."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Ignore abandoned asynchronous generators: only dead processes leave them, and no code of those may run."""

    def _run_once(self) -> None:
        """Run iterations as asyncio does, without a selector and by process state, until the loop is stopped."""
        timers, ready = self._timers, self._ready
        while not self._stopping:
            if not ready:
                self._let_time_pass()
            now_s = self.passed_s
            while timers and timers[0][_WHEN] <= now_s:
                timer = heappop(timers)
                if timer[_CALLBACK] is not None:
                    ready.append(timer)
            count = len(ready)
            self._steps_at_this_time += count
            assert self._steps_at_this_time < STEPS_AT_ONE_TIME_MAX, f"time stands still at {now_s} s: {ready[0]}"
            while count:
                count -= 1
                step = ready.popleft()
                _, _, callback, arguments, context, process = step
                if callback is None:
                    continue
                if (
                    process is None
                    or (process.is_alive and not process.is_paused)
                    or not self._is_kept_from_running(step)
                ):
                    try:
                        context.run(callback, *arguments)
                    except BaseException as error:
                        self._failed(step, error)
                if self.on_step is not None:
                    self.on_step()

    def _is_kept_from_running(self, step: SimulatedHandle) -> bool:
        """Return whether a step may not run now. It is dropped if its process is dead, and parked during a pause."""
        process = step[_PROCESS]
        if process is None or (process.is_alive and not process.is_paused):
            return False
        if process.is_alive:
            process.parked.append(step)
        return True

    def _failed(self, step: SimulatedHandle, error: BaseException) -> None:
        """Report an exception of any class, as asyncio's handles do. Raises the error that ends the whole process."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        message = f"exception in callback {getattr(step.callback, '__qualname__', step.callback)}"
        self.call_exception_handler({"message": message, "exception": error, "handle": step})

    def _let_time_pass(self) -> None:
        """Advance time to the next timer, once no callback is ready."""
        timers = self._timers
        while timers and timers[0][_CALLBACK] is None:
            heappop(timers)
        assert timers, "everyone waits and no timer is set"
        due_s = timers[0][_WHEN]
        if due_s > self.passed_s:
            self.passed_s = due_s
            self._steps_at_this_time = 0
            if self.trace is not None:
                self.trace.time_passed(due_s)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, *, start_serving: bool = True, **_: Any
    ) -> Any:
        return self.network.listen(factory, host, port, start_serving)


def run(scenario: Coroutine[Any, Any, _T], trace: Trace | None = None) -> _T:
    """Run a coroutine to its end in simulated time. Processes that still run then are abandoned."""
    loop = SimulatedLoop(trace)
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.abandon_tasks()
        loop.close()
