"""Flow control of replication: a window of bytes in flight for each log directory of a follower. Pure.

Sent bytes count until the follower reports them as flushed. A hung disk of the follower uses up the window of its own
log directory, and replication to the other directories continues. The stream number contains the number of the
follower's log directory (`frames.directory_of`).
"""

from collections import deque

ANSWERS_ON_THE_WAY_MAX = 2
PUSH_BYTES = 1 << 20
"""Bytes of a push, all its parts together. Its last batch may exceed them."""
WINDOW_BYTES = 8 << 20
"""Bytes sent to one log directory of a follower and not yet reported as flushed."""


class ImpossibleCredit(Exception):
    """A report of more bytes than are in flight."""


class PushWindow:
    """Window of one log directory."""

    __slots__ = ("_is_cut", "_on_the_way", "_reported", "_sent", "credit", "push_bytes")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self.push_bytes = PUSH_BYTES
        """Bytes that the next push may have, or the next part of the last one."""
        self._on_the_way: deque[int] = deque()
        """Total bytes sent after each push of which something is not reported as flushed."""
        self._sent = self._reported = 0
        self._is_cut = False
        """Whether another part of the last push is to be sent."""

    def may_send(self) -> bool:
        """Return whether a push or its next part may be sent. The last batch of a push may exceed the window."""
        return self.credit > 0 and (self._is_cut or len(self._on_the_way) < ANSWERS_ON_THE_WAY_MAX)

    def sent(self, size: int, *, is_cut: bool = False) -> None:
        """Record that `size` bytes were sent: a push, or a part. A push that `is_cut` goes on while it has bytes left.

        All its parts count as one push in flight.
        """
        self.credit -= size
        self._sent += size
        if self._is_cut and self._on_the_way:
            self._on_the_way[-1] = self._sent
        else:
            self._on_the_way.append(self._sent)
        self.push_bytes -= size
        self._is_cut = is_cut and self.push_bytes > 0
        if not self._is_cut:
            self.push_bytes = PUSH_BYTES

    def reported(self, size: int) -> None:
        """Record that `size` bytes are flushed, or were discarded. Raises ImpossibleCredit."""
        if not 0 <= size <= self._sent - self._reported:
            raise ImpossibleCredit(f"{size} bytes reported, but only {self._sent - self._reported} are in flight")
        self.credit += size
        self._reported += size
        while self._on_the_way and self._on_the_way[0] <= self._reported:
            self._on_the_way.popleft()
