"""The event loop's time for requests of many items: a slice of 4 ms in each turn of the loop, for all of them together.

Such a request is handled in steps of some microseconds each: a generator that yields after every item. Once the slice
of a turn is used up, further steps wait for later turns: one request a turn, in the order in which they came to wait.
A thread would be worse: while it runs Python code, every callback of the loop may wait 5 ms for the interpreter's lock.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from cordwood.replication.measures import Clock

SLICE_S = 0.004
SLICE_STEPS = 128
"""A slice ends after so many steps, too: in the simulator no time goes by while code runs."""
FREE_STEPS = 32
"""A request of so few items never waits, however many large ones do."""
AT_ONCE_MAX = 8
"""Items of one request whose outcome is awaited at the same time."""

_T = TypeVar("_T")
_Item = TypeVar("_Item")
Steps = Generator[None, None, _T]


class Turns:
    """One for all connections of a broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: float | None = None
        """When the slice of this turn of the loop ends; None before its first step."""
        self._steps_left = 0
        self._is_due = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def run(self, steps: Steps[_T], room: Callable[[], Awaitable[None] | None] = lambda: None) -> _T:
        """Take all the steps. Returns what they return. Steps beyond the free ones wait for `room` where it says so."""
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

    async def each(self, items: Iterable[_Item]) -> AsyncIterator[_Item]:
        """The items, each of which the caller takes a step for."""
        rest = iter(items)
        for item in islice(rest, FREE_STEPS):
            yield item
        for item in rest:
            if not self._has_time():
                await self._later_turn()
            yield item

    async def within(self, asked: Iterable[tuple[_T, Iterable[_Item]]]) -> AsyncIterator[tuple[_T, _Item]]:
        """The items of each group, beside the group's name; a step for each, and for a group that has none."""
        async for name, items in self.each(asked):
            async for item in self.each(items):
                yield name, item

    async def gather(self, function: Callable[[_Item], Awaitable[_T]], items: Collection[_Item]) -> list[_T]:
        """What the function comes to for each item, in their order; a few are under way at the same time.

        Each begins with a step of its own. `function` must not raise.
        """
        results: dict[int, _T] = {}
        rest = enumerate(items)

        async def work() -> None:
            for place, item in rest:
                if place >= FREE_STEPS and not self._has_time():
                    await self._later_turn()
                results[place] = await function(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE_MAX, len(items))):
                group.create_task(work())
        return [results[place] for place in range(len(items))]

    def _has_time(self) -> bool:
        """Whether one more step may be taken in this turn of the loop."""
        if self._ends is None:
            self._ends, self._steps_left = self._clock() + SLICE_S, SLICE_STEPS
            self._turn_is_used()
        self._steps_left -= 1
        return self._steps_left >= 0 and self._clock() < self._ends

    async def _later_turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter
        # Whatever newcomers have used of this turn: one step is taken, so that nobody waits for ever.
        self._has_time()

    def _turn_is_used(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Have the next one go on. It runs in the turn after this one, before `_next_turn` is called again."""
        self._is_due, self._ends = False, None
        while self._waiting:
            waiter = self._waiting.popleft()
            # The waiter of a request that was given up is cancelled.
            if not waiter.done():
                waiter.set_result(None)
                self._turn_is_used()
                return


def at_once(steps: Steps[_T]) -> _T:
    """Take all the steps now, where there are only a few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def some(steps: Steps[_T], count: int) -> _T | None:
    """Take so many steps at most. None where they were not enough; `steps` goes on from there."""
    try:
        for _ in range(count):
            next(steps)
    except StopIteration as end:
        result: _T = end.value
        return result
    return None


def distinct(items: Iterable[_Item]) -> Steps[list[_Item]]:
    """The items without those that came before, in their order."""
    found: dict[_Item, None] = {}
    for item in items:
        found[item] = None
        yield
    return list(found)


def in_order(items: Iterable[_Item], key: Callable[[_Item], Any]) -> Steps[list[_Item]]:
    """The items, sorted."""
    rest = iter(items)
    runs = []
    while run := list(islice(rest, SLICE_STEPS)):
        runs.append(sorted(run, key=key))
        yield
    return (yield from kept(merge(*runs, key=key)))


def kept(items: Iterable[_Item]) -> Steps[list[_Item]]:
    """The items of an iterator that does some work for each, as a list."""
    found = []
    for item in items:
        found.append(item)
        yield
    return found
