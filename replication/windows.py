"""Flow control of replication: a window of bytes in flight for each log directory of a follower. Pure.

Sent bytes count until the follower reports them as flushed. A hung disk of the follower uses up the window of its own
log directory, and replication to the other directories continues. The stream number contains the number of the
follower's log directory (`frames.directory_of`).

The pushes in flight are limited twice: those to replicas in sync, and those to replicas that catch up. A producer waits
for the former, and not until bytes of the latter are flushed.
"""

from collections import deque

ANSWERS_ON_THE_WAY_MAX = 2
"""Pushes in flight to replicas in sync, and as many to those that catch up."""
PUSH_BYTES = 1 << 20
"""Bytes of a push, all its parts together. Its last batch may exceed them."""
WINDOW_BYTES = 8 << 20
"""Bytes sent to one log directory of a follower and not yet reported as flushed."""


class ImpossibleCredit(Exception):
    """A report of more bytes than are in flight."""


class PushWindow:
    """Window of one log directory."""

    __slots__ = ("_catching_up", "_in_sync", "_is_cut", "_reported", "_sent", "credit", "push_bytes")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self.push_bytes = PUSH_BYTES
        """Bytes that the next push to replicas in sync may have, or the next part of the last one."""
        self._in_sync: deque[int] = deque()
        """Total bytes sent after each push to replicas in sync of which something is not reported as flushed."""
        self._catching_up: deque[int] = deque()
        """As `_in_sync`, of pushes to replicas that catch up."""
        self._sent = self._reported = 0
        self._is_cut = False
        """Whether another part of the last push to replicas in sync is to be sent."""

    def may_send(self) -> bool:
        """Return whether a push to replicas in sync, or its next part, may be sent.

        The last batch of a push may exceed the window.
        """
        return self.credit > 0 and (self._is_cut or len(self._in_sync) < ANSWERS_ON_THE_WAY_MAX)

    def may_catch_up(self) -> bool:
        """Return whether a push to replicas that catch up may be sent. Its last batch may exceed the window."""
        return self.credit > 0 and len(self._catching_up) < ANSWERS_ON_THE_WAY_MAX

    def sent(self, size: int, *, is_cut: bool = False) -> None:
        """Record that `size` bytes were sent to replicas in sync: a push, or a part.

        A push that `is_cut` goes on while it has bytes left. All its parts count as one push in flight.
        """
        self.credit -= size
        self._sent += size
        if self._is_cut and self._in_sync:
            self._in_sync[-1] = self._sent
        else:
            self._in_sync.append(self._sent)
        self.push_bytes -= size
        self._is_cut = is_cut and self.push_bytes > 0
        if not self._is_cut:
            self.push_bytes = PUSH_BYTES

    def caught_up(self, size: int) -> None:
        """Record that a push of `size` bytes was sent to replicas that catch up."""
        self.credit -= size
        self._sent += size
        self._catching_up.append(self._sent)

    def reported(self, size: int) -> None:
        """Record that `size` bytes are flushed, or were discarded. Raises ImpossibleCredit."""
        if not 0 <= size <= self._sent - self._reported:
            raise ImpossibleCredit(f"{size} bytes reported, but only {self._sent - self._reported} are in flight")
        self.credit += size
        self._reported += size
        for pushes in (self._in_sync, self._catching_up):
            while pushes and pushes[0] <= self._reported:
                pushes.popleft()
