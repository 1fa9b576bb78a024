"""A connection between two brokers, as replication sees it: frames arrive elsewhere, chunks leave here."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from cordwood.storage.disk import Bytes
from cordwood.storage.slices import Slice

Chunk = bytes | Slice
"""Bytes to send, or a stretch of a segment to be read as it is sent."""

ReadPiece = Callable[[Slice], Awaitable[Bytes]]
"""Takes the next piece of a slice in a thread for the disk that it lies on. Raises as `Slice.next_piece`."""


class Channel(Protocol):
    """One connection. Nothing sent is known to have arrived."""

    @property
    def is_open(self) -> bool: ...

    on_closed: Callable[[], None] | None
    """Called once, when it has ended, for whatever reason."""

    def push(self, chunks: list[Chunk]) -> None:
        """Send these at the end of this turn, behind what was pushed before. Dropped where it is closed."""
        ...

    def close(self, reason: str | None = None) -> None:
        """End it; a `reason` becomes a line in the log."""
        ...


Dial = Callable[[str, int, Callable[[memoryview], None]], Awaitable[Channel]]
"""Connects to host and port, and has every frame given to the function. Raises OSError or TimeoutError."""
