"""What clients asked of this broker, by API: how often, how long it took, how many bytes, and what was refused."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.channel import Chunk
from cordwood.replication.measures import SECONDS, Clock, Histogram


class ApiMeasures:
    """One API. It is met twice for each request, on the hot path: when it is taken up, and when its answer leaves."""

    __slots__ = ("clock", "errors", "received_bytes", "seconds", "sent_bytes", "unanswered")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = Histogram(SECONDS)
        """From the moment that the broker takes a request up to the one in which its answer goes to the socket."""
        self.received_bytes = self.sent_bytes = 0
        self.unanswered = 0
        """Requests whose clients want no answer, of which nobody can say how long they took."""
        self.errors: Counter[int] = Counter()
        """By Kafka's error code."""

    def done(self, size: int, chunks: Sequence[Chunk], seconds: float) -> None:
        """A request of `size` bytes has its answer; no chunks where it wants none."""
        self.received_bytes += size
        if chunks:
            for chunk in chunks:
                self.sent_bytes += len(chunk) if isinstance(chunk, bytes) else chunk.size
            self.seconds.add(seconds)
        else:
            self.unanswered += 1


class Held(NamedTuple):
    """A request that held the event loop, in one go, for so long."""

    seconds: float
    api: str
    client: str
    client_id: str
    correlation_id: int


class RequestMeasures:
    """All APIs, by their keys; what was no request at all; and the connections that clients came by."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.longest_held_s = 0.0
        """How long a request has held the loop at most since `longest_held` was called last."""
        self._longest_held: Held | None = None
        self.by_api: Mapping[int, ApiMeasures] = {key: ApiMeasures(clock) for key in ApiKey}
        self.malformed = 0
        """Requests that nobody could make sense of, each of which ended its connection."""
        self.connections_opened = self.connections_refused = self.connections_evicted = 0
        """Refused ones were opened too; evicted ones were idle, and made room for others."""

    def note_held(self, held: Held) -> None:
        """A request has held the loop for longer than `longest_held_s`."""
        self.longest_held_s, self._longest_held = held.seconds, held

    def longest_held(self) -> Held | None:
        """The request that held the loop longest since this was asked last."""
        longest, self._longest_held = self._longest_held, None
        self.longest_held_s = 0.0
        return longest
