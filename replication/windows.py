"""How much may be on its way to a follower: a window for each of its log directories. Pure.

What has been sent counts until the follower reports it as flushed. A disk of the follower that hangs uses up the window
of its own directory, and the others go on. A follower names the directory by the number of the stream
(`frames.directory_of`).
"""

from collections import deque

ANSWERS_ON_THE_WAY_MAX = 2
WINDOW_BYTES = 8 << 20
"""Sent to one log directory of a follower and not yet reported as flushed."""


class ImpossibleCredit(Exception):
    """More is reported than is on its way."""


class Window:
    """That of one directory."""

    __slots__ = ("_on_the_way", "_reported", "_sent", "credit")

    def __init__(self) -> None:
        self.credit = WINDOW_BYTES
        self._on_the_way: deque[int] = deque()
        """The total of bytes sent after each push of which something is not reported as flushed."""
        self._sent = self._reported = 0

    def may_send(self) -> bool:
        """Whether another push may go out. It may go beyond the window, with the last of its batches."""
        return self.credit > 0 and len(self._on_the_way) < ANSWERS_ON_THE_WAY_MAX

    def sent(self, size: int) -> None:
        """A push with so many bytes has gone out."""
        self.credit -= size
        self._sent += size
        self._on_the_way.append(self._sent)

    def reported(self, size: int) -> None:
        """So many bytes are flushed, or were not wanted any more. Raises ImpossibleCredit."""
        if not 0 <= size <= self._sent - self._reported:
            raise ImpossibleCredit(f"{size} bytes reported, of {self._sent - self._reported} that are on the way")
        self.credit += size
        self._reported += size
        while self._on_the_way and self._on_the_way[0] <= self._reported:
            self._on_the_way.popleft()
