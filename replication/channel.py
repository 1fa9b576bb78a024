"""Connection between two brokers, as replication uses it to send; received frames go to a callback."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from cordwood.storage.disk import Bytes
from cordwood.storage.slices import Slice
from cordwood.storage.steps import Steps

Chunk = bytes | Slice
"""Bytes to send, or a slice of a segment that is read while it is sent."""

ReadPiece = Callable[[Slice], Awaitable[Bytes]]
"""Reads the next piece of a slice in a thread of its log directory. Raises as `Slice.next_piece`."""


class Channel(Protocol):
    """One connection. There is no confirmation that sent bytes have arrived."""

    @property
    def is_open(self) -> bool: ...

    on_closed: Callable[[], None] | None
    """Callback for the end of the connection, for any reason. Called once."""

    def push(self, chunks: list[Chunk]) -> None:
        """Send chunks at the end of this event-loop iteration, after earlier ones. Dropped if the channel is closed."""
        ...

    def close(self, reason: str | None = None) -> None:
        """Close the connection; a `reason` is written to the broker's log."""
        ...


Received = Callable[[memoryview], Steps[None] | None]
"""Handles a frame, or returns the steps that handle the rest of it. The next frame has to wait for their end."""

Dial = Callable[[str, int, Received], Awaitable[Channel]]
"""Connects to host and port, and passes every frame to the function. Raises OSError or TimeoutError."""
