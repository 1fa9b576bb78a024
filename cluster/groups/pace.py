"""Pace of replies: of thousands that one event completes, some leave in each event-loop iteration.

Each reply wakes a request, which encodes its response. All of a large group in one iteration would keep every other
connection waiting for as long as that takes together.
"""

import asyncio
from collections import deque
from collections.abc import Callable

REPLIES_PER_ITERATION_MAX = 32


class ReplyPace:
    """The replies of one broker, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = REPLIES_PER_ITERATION_MAX
        """How many replies may still leave in this iteration."""

    def reply(self, send: Callable[[], None]) -> None:
        """Send a reply in this iteration if there is room, or in a later one."""
        if self._left == REPLIES_PER_ITERATION_MAX:
            self._loop.call_soon(self._next_iteration)
        if self._left:
            self._left -= 1
            send()
        else:
            self._waiting.append(send)

    def _next_iteration(self) -> None:
        self._left = REPLIES_PER_ITERATION_MAX
        for _ in range(min(len(self._waiting), REPLIES_PER_ITERATION_MAX)):
            self.reply(self._waiting.popleft())
