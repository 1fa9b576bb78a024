"""An entry of a connection's response queue: a pending request with its memory reservation and its response."""

from typing import TYPE_CHECKING

from cordwood.cluster.kafka.request_measures import ApiMeasures
from cordwood.replication.channel import Chunk

if TYPE_CHECKING:
    from cordwood.cluster.kafka.connection import Connection


class Slot:
    """One request's place in its connection's queue of responses."""

    __slots__ = ("api", "began", "chunks", "connection", "held_bytes", "size", "taken_at")

    def __init__(self, connection: "Connection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.taken_at = connection.last_active
        self.held_bytes = 0
        """Bytes counted for the request in the pool of pending requests."""
        self.chunks: list[Chunk] | None = None
        self.api: ApiMeasures | None = None
        """The metrics of the request's API, timed from `began`; None if the frame is no client request."""
        self.began = 0.0

    def fill(self, chunks: list[Chunk]) -> None:
        """Set the response, sent at the end of this event-loop iteration; no chunks if the client expects none."""
        self.chunks = chunks
        self.connection.end_of_tick.answered(self.connection)

    def reserve(self, size: int, *, alone: bool = False) -> bool:
        """Reserve `size` bytes until the response is sent.

        With `alone`, no other request of this connection is handled until then. Return False if the pool has no room,
        or with `alone` if earlier requests are pending: the request is put back and handled again later.
        """
        return self.connection.reserve(self, size, alone)

    def hold(self, size: int) -> None:
        """Count `size` bytes of the response while it waits for earlier responses."""
        self.held_bytes += size
        self.connection.hold(size)

    def refused(self, code: int) -> None:
        """Count a Kafka error code in the response."""
        if self.api is not None:
            self.api.errors[code] += 1
