"""Flow control of replication: a window of bytes in flight for each log directory of a follower. Pure.

Sent bytes count until the follower reports them as flushed. A hung disk of the follower uses up the window of its own
log directory, and replication to the other directories continues. The stream number contains the number of the
follower's log directory (`frames.directory_of`).
"""

from collections import deque

ANSWERS_ON_THE_WAY_MAX = 2
WINDOW_BYTES = 8 << 20
"""Bytes sent to one log directory of a follower and not yet reported as flushed."""


class ImpossibleCredit(Exception):
    """A report of more bytes than are in flight."""


class PushWindow:
    """Window of one log directory."""

    __slots__ = ("_on_the_way", "_reported", "_sent", "credit")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self._on_the_way: deque[int] = deque()
        """Total bytes sent after each push of which something is not reported as flushed."""
        self._sent = self._reported = 0

    def may_send(self) -> bool:
        """Return whether another push may be sent. The last batch of a push may exceed the window."""
        return self.credit > 0 and len(self._on_the_way) < ANSWERS_ON_THE_WAY_MAX

    def sent(self, size: int) -> None:
        """Record that a push of `size` bytes was sent."""
        self.credit -= size
        self._sent += size
        self._on_the_way.append(self._sent)

    def reported(self, size: int) -> None:
        """Record that `size` bytes are flushed, or were discarded. Raises ImpossibleCredit."""
        if not 0 <= size <= self._sent - self._reported:
            raise ImpossibleCredit(f"{size} bytes reported, but only {self._sent - self._reported} are in flight")
        self.credit += size
        self._reported += size
        while self._on_the_way and self._on_the_way[0] <= self._reported:
            self._on_the_way.popleft()
