"""The schedule of a voter's ticks."""

import asyncio
from collections.abc import Callable


class Ticker:
    """Ticks after every event, at intervals, and no later than an election is due."""

    def __init__(self, tick: Callable[[], None], interval_s: float, deadline_s: Callable[[], float]) -> None:
        self._tick, self._interval_s, self._deadline_s = tick, interval_s, deadline_s
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Schedule one tick for everything that arrives before it."""
        if self._next is None and not self._is_closed:
            self._next = self._loop.call_soon(self._tick_now)

    def start(self) -> None:
        """Tick at intervals, and no later than an election is due: voters with equal ticks would stand together."""
        self.wake()
        due_s = self._deadline_s() - self._loop.time()
        delay_s = min(due_s, self._interval_s) if due_s > 0 else self._interval_s
        self._timer = self._loop.call_later(delay_s, self.start)

    def close(self) -> None:
        self._is_closed = True
        for handle in (self._timer, self._next):
            if handle is not None:
                handle.cancel()

    def _tick_now(self) -> None:
        self._next = None
        self._tick()
