"""What clients asked of this broker, by API: how often, how long it took, how many bytes, and what was refused."""

from collections import Counter
from collections.abc import Mapping, Sequence

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


class RequestMeasures:
    """All APIs, by their keys; what was no request at all; and the connections that clients came by."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.by_api: Mapping[int, ApiMeasures] = {key: ApiMeasures(clock) for key in ApiKey}
        self.malformed = 0
        """Requests that nobody could make sense of, each of which ended its connection."""
        self.connections_opened = self.connections_refused = self.connections_evicted = 0
        """Refused ones were opened too; evicted ones were idle, and made room for others."""
