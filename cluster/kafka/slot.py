"""A request that waits for its answer, and what it holds meanwhile."""

from typing import TYPE_CHECKING

from cordwood.cluster.kafka.request_measures import ApiMeasures
from cordwood.replication.channel import Chunk

if TYPE_CHECKING:
    from cordwood.cluster.kafka.connection import Connection


class Slot:
    """One request's place in its connection's queue of answers."""

    __slots__ = ("api", "began", "chunks", "connection", "held_bytes", "size", "taken_at")

    def __init__(self, connection: "Connection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.taken_at = connection.last_active
        self.held_bytes = 0
        """What the request is counted with in the pool of those that wait for their answers."""
        self.chunks: list[Chunk] | None = None
        self.api: ApiMeasures | None = None
        """Where the request is counted, from `began` on by the clock of that; None for what is no client's request."""
        self.began = 0.0

    def fill(self, chunks: list[Chunk]) -> None:
        """The answer, to be sent at the end of this turn; no chunks where the client expects none."""
        self.chunks = chunks
        self.connection.end_of_tick.answered(self.connection)

    def reserve(self, size: int, *, alone: bool = False) -> bool:
        """Count so many bytes that this request keeps in memory until it is answered.

        With `alone` nothing else of its connection is handled meanwhile. False where there is no room, or where
        earlier requests are not answered: the request is put back, and is handled again when that has changed.
        """
        return self.connection.reserve(self, size, alone)

    def hold(self, size: int) -> None:
        """Count so many bytes of the answer, for as long as it waits for those before it."""
        self.held_bytes += size
        self.connection.hold(size)

    def refused(self, code: int) -> None:
        """The answer has an error of Kafka's."""
        if self.api is not None:
            self.api.errors[code] += 1
