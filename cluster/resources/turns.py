"""Cooperative scheduling of large requests: one time slice of 4 ms in each event-loop iteration, shared by all of them.

A large request is handled in steps of some microseconds: a generator that yields after every item. Once the slice of an
iteration is used up, further steps wait for later iterations: one waiting request per iteration, in FIFO order.
A thread would be worse: while it runs Python code, every event-loop callback may wait 5 ms for the GIL.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from itertools import islice
from typing import TypeVar

from cordwood.replication.measures import Clock
from cordwood.storage.steps import Steps

SLICE_S = 0.004
SLICE_STEPS = 128
"""A slice also ends after this many steps: in the simulator no time passes while code runs."""
FREE_STEPS = 32
"""A request with at most this many items never waits for a slice."""
AT_ONCE_MAX = 8
"""Items of one request that are awaited concurrently."""

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class Turns:
    """The time slices of one broker, shared by all its connections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: float | None = None
        """End of this iteration's slice; None before its first step."""
        self._steps_left = 0
        self._is_due = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def now(self) -> float:
        """Return the time in seconds, by the clock that slices are measured with."""
        return self._clock()

    async def run(self, steps: Steps[_T], room: Callable[[], Awaitable[None] | None] = lambda: None) -> _T:
        """Run all steps and return their result. After FREE_STEPS, await what `room` returns before each step."""
        try:
            for _ in range(FREE_STEPS):
                next(steps)
            while True:
                if (wait := room()) is not None:
                    await wait
                if not self._has_time():
                    await self._later_turn()
                next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result

    async def turn(self) -> None:
        """Return when an iteration's slice has room for a step, which comes before the next suspension."""
        if not self._has_time():
            await self._later_turn()

    async def each(self, items: Iterable[_Item]) -> AsyncIterator[_Item]:
        """Yield the items; each counts as one step."""
        rest = iter(items)
        for item in islice(rest, FREE_STEPS):
            yield item
        for item in rest:
            if not self._has_time():
                await self._later_turn()
            yield item

    async def within(self, asked: Iterable[tuple[_T, Iterable[_Item]]]) -> AsyncIterator[tuple[_T, _Item]]:
        """Yield the items of all groups, each with its group's name. An item is one step, and so is a group."""
        async for name, items in self.each(asked):
            async for item in self.each(items):
                yield name, item

    async def gather(
        self, function: Callable[[_Item], Awaitable[_T]], items: Collection[_Item], at_once: int = AT_ONCE_MAX
    ) -> list[_T]:
        """Return the results of `function` for all items, in order, with at most `at_once` concurrent calls.

        Each call counts as one step. `function` must not raise.
        """
        if len(items) <= 1:
            return [await function(item) for item in items]
        results: dict[int, _T] = {}
        rest = enumerate(items)

        async def work() -> None:
            for place, item in rest:
                if place >= FREE_STEPS and not self._has_time():
                    await self._later_turn()
                results[place] = await function(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(items))):
                group.create_task(work())
        return [results[place] async for place in self.each(range(len(items)))]

    def _has_time(self) -> bool:
        """Whether this iteration's slice has room for one more step."""
        if self._ends is None:
            self._ends, self._steps_left = self._clock() + SLICE_S, SLICE_STEPS
            self._turn_is_used()
        self._steps_left -= 1
        return self._steps_left >= 0 and self._clock() < self._ends

    async def _later_turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter
        # Take one step even if newer requests have used up the slice, so that no request starves.
        self._has_time()

    def _turn_is_used(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Resume the first waiting request. It runs in the next iteration, before the next call of `_next_turn`."""
        self._is_due, self._ends = False, None
        while self._waiting:
            waiter = self._waiting.popleft()
            # The waiter is cancelled if its request was.
            if not waiter.done():
                waiter.set_result(None)
                self._turn_is_used()
                return
