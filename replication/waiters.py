"""Pending produce acks and long-poll fetches (Kafka's purgatory), completed once per event-loop iteration."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from cordwood.replication.tasks import report


class Waiter(Protocol):
    """A request that waits until a partition reaches an offset. One of its two methods is called, once.

    The waiter is refused after `deadline`, in the event loop's time.
    """

    @property
    def deadline(self) -> float: ...

    @property
    def spans_epochs(self) -> bool:
        """Whether it waits on while the same replica leads in the next leader epoch: a producer sees no epochs."""
        ...

    def reached(self) -> None: ...

    def failed(self, reason: Exception) -> None: ...


class Watcher(Protocol):
    """An object with work at the end of an event-loop iteration, woken once per iteration."""

    def wake(self) -> None: ...

    def fail(self, error: Exception) -> None:
        """End the work in progress, and nothing else, after `wake` has raised `error`."""
        ...


class FutureWaiter:
    """A coroutine that waits on `future`, without a deadline, in one leader epoch."""

    deadline = math.inf
    spans_epochs = False

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, reason: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(reason)


_NONE: deque[tuple[int, Waiter]] = deque()
"""Shared by all that have had no waiter: an empty deque takes 760 bytes. Nothing is added to it."""


class OffsetWaiters:
    """Waiters of one partition, in ascending order of the end offset that they wait for."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue = _NONE

    def add(self, end: int, waiter: Waiter) -> None:
        if self.queue is _NONE:
            self.queue = deque(((end, waiter),))
        elif self.queue and self.queue[-1][0] > end:
            # A duplicate batch waits for the end offset of its first append, which is below later ones.
            self.queue = deque(sorted((*self.queue, (end, waiter)), key=lambda entry: entry[0]))
        else:
            self.queue.append((end, waiter))

    def reached(self, end: int) -> None:
        """Complete the waiters for `end` and lower offsets."""
        queue = self.queue
        while queue and queue[0][0] <= end:
            waiter = queue.popleft()[1]
            try:
                waiter.reached()
            except Exception as error:
                report("a waiter failed when its offset was reached", error)

    def expire(self, now: float, reason: Exception) -> None:
        """Refuse the waiters whose deadline has passed."""
        _refuse(self._removed(lambda waiter: waiter.deadline <= now), reason)

    def succeed(self, former: "OffsetWaiters") -> None:
        """Take over those of the former leader epoch that span epochs."""
        taken = former._removed(lambda waiter: waiter.spans_epochs)
        if taken:
            self.queue = deque(taken)

    def _removed(self, is_wanted: Callable[[Waiter], bool]) -> list[tuple[int, Waiter]]:
        """Remove and return the waiters for which `is_wanted` returns True."""
        removed = [entry for entry in self.queue if is_wanted(entry[1])]
        if removed:
            self.queue = deque(entry for entry in self.queue if not is_wanted(entry[1]))
        return removed

    def fail(self, reason: Exception) -> None:
        queue, self.queue = self.queue, _NONE
        _refuse(queue, reason)


def _refuse(entries: Iterable[tuple[int, Waiter]], reason: Exception) -> None:
    for _, waiter in entries:
        try:
            waiter.failed(reason)
        except Exception as error:
            report("a waiter failed when it was refused", error)


class EndOfTickScheduler:
    """Wake-ups at the end of an event-loop iteration, one each: connections with responses first, then long polls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._is_scheduled = loop, False
        self._answered: dict[Watcher, None] = {}
        self._watching: dict[Watcher, None] = {}

    def answered(self, connection: Watcher) -> None:
        """Wake a connection that has a response to send."""
        self._answered[connection] = None
        if not self._is_scheduled:
            self._schedule()

    def moved(self, watchers: dict[Watcher, None]) -> None:
        """Wake the watchers of a partition that has changed."""
        self._watching.update(watchers)
        if not self._is_scheduled:
            self._schedule()

    def due(self, watcher: Watcher) -> None:
        """Wake a watcher that has work to do."""
        self._watching[watcher] = None
        if not self._is_scheduled:
            self._schedule()

    def run(self) -> None:
        if self._answered:
            self._send()
        if self._watching:
            woken, self._watching = self._watching, {}
            for watcher in woken:
                try:
                    watcher.wake()
                except Exception as error:
                    _fail(watcher, error)
            if self._answered:
                self._send()

    def _schedule(self) -> None:
        """Schedule `run`: the code that runs in this iteration may not call it."""
        self._is_scheduled = True
        self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def _send(self) -> None:
        answered, self._answered = self._answered, {}
        for connection in answered:
            try:
                connection.wake()
            except Exception as error:
                _fail(connection, error)


def _fail(watcher: Watcher, error: Exception) -> None:
    report("a watcher failed when it was woken", error)
    watcher.fail(error)
