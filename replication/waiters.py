"""Who waits for what: acknowledgements for an offset, long polls for news; woken together at the end of a turn."""

import asyncio
import math
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from cordwood.replication.tasks import report


class Waiter(Protocol):
    """Something that waits for one partition to reach an offset. Called once, by one of the two.

    `deadline` is the loop's time after which it is refused.
    """

    @property
    def deadline(self) -> float: ...

    def reached(self) -> None: ...

    def failed(self, reason: Exception) -> None: ...


class Watcher(Protocol):
    """Something with work to do once a turn is over, however often it was mentioned during the turn."""

    def wake(self) -> None: ...

    def fail(self, error: Exception) -> None:
        """`wake` has raised this: end what it is at work on, and nothing else."""
        ...


class FutureWaiter:
    """A coroutine that waits, for `future`, as long as it takes."""

    deadline = math.inf

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, reason: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(reason)


class OffsetWaiters:
    """Waiters of one partition by the end offset they wait for, which never goes down from one to the next."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Waiter]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, end: int, waiter: Waiter) -> None:
        if self._queue and self._queue[-1][0] > end:
            # A batch sent again waits for the end of its first appearance, which lies before later ones.
            self._queue = deque(sorted((*self._queue, (end, waiter)), key=lambda entry: entry[0]))
        else:
            self._queue.append((end, waiter))

    def reached(self, end: int) -> None:
        """Everything below `end` is as it should be."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            waiter = queue.popleft()[1]
            try:
                waiter.reached()
            except Exception as error:
                report("a waiter failed as its offset was reached", error)

    def expire(self, now: float, reason: Exception) -> None:
        """Refuse those whose deadline is past."""
        overdue = [entry for entry in self._queue if entry[1].deadline <= now]
        if overdue:
            self._queue = deque(entry for entry in self._queue if entry[1].deadline > now)
            _refuse(overdue, reason)

    def fail(self, reason: Exception) -> None:
        queue, self._queue = self._queue, deque()
        _refuse(queue, reason)


def _refuse(entries: Iterable[tuple[int, Waiter]], reason: Exception) -> None:
    for _, waiter in entries:
        try:
            waiter.failed(reason)
        except Exception as error:
            report("a waiter failed as it was refused", error)


class EndOfTickScheduler:
    """Whom to wake at the end of this turn, each once: connections with answers to send first, then long polls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._is_scheduled = loop, False
        self._answered: dict[Watcher, None] = {}
        self._watching: dict[Watcher, None] = {}

    def answered(self, connection: Watcher) -> None:
        """The connection has an answer that can be sent."""
        self._answered[connection] = None
        if not self._is_scheduled:
            self._see_to_it()

    def moved(self, watchers: dict[Watcher, None]) -> None:
        """A partition that these watch has news."""
        self._watching.update(watchers)
        if not self._is_scheduled:
            self._see_to_it()

    def due(self, watcher: Watcher) -> None:
        """This one has something to do."""
        self._watching[watcher] = None
        if not self._is_scheduled:
            self._see_to_it()

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

    def _see_to_it(self) -> None:
        """Whoever began this turn may not know that there is somebody to wake."""
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
    report("a watcher failed as it was woken", error)
    watcher.fail(error)
