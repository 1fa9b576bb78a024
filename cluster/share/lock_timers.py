"""Timers of the locks of all share partitions of a broker: one heap, and one timer of the event loop."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from cordwood.replication.measures import Clock

SLICE_S = 0.004
"""How long the locks that have ended are handled in one iteration of the event loop."""
SLICE_MAX = 64
"""The most share partitions in one iteration: in the simulator no time passes while code runs."""


class Lockable(Protocol):
    """A share partition, with the time of its next timer."""

    timer_at: float | None


_LockableT = TypeVar("_LockableT", bound=Lockable)


class LockTimers(Generic[_LockableT]):
    """One timer for each share partition that has locks.

    `on_end` handles the locks of one that have ended by then, and returns when its next ones do: if they have ended
    already, it is called again for them.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[_LockableT, float], float | None], clock: Clock
    ) -> None:
        """`clock` measures slices: the time of uvloop stands still during an iteration."""
        self._loop, self._on_end, self._clock = loop, on_end, clock
        self._heap: list[tuple[float, int, _LockableT]] = []
        self._numbers = 0
        self._handle: asyncio.TimerHandle | None = None

    def set(self, lockable: _LockableT, at: float) -> None:
        """Handle the locks of a share partition at that time, unless it has an earlier timer."""
        if lockable.timer_at is not None and lockable.timer_at <= at:
            return
        lockable.timer_at = at
        self._numbers += 1
        heapq.heappush(self._heap, (at, self._numbers, lockable))
        if self._heap[0][2] is lockable:
            self._arm()

    def close(self) -> None:
        """Handle no lock any more."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(self._heap[0][0], self._run) if self._heap else None

    def _run(self) -> None:
        self._handle = None
        now = self._loop.time()
        until, left = self._clock() + SLICE_S, SLICE_MAX
        while self._heap and self._heap[0][0] <= now and left and self._clock() < until:
            at, _, lockable = heapq.heappop(self._heap)
            left -= 1
            # An earlier timer has taken the place of this one.
            if lockable.timer_at == at:
                lockable.timer_at = None
                next_at = self._on_end(lockable, now)
                if next_at is not None:
                    self.set(lockable, next_at)
        self._arm()
