"""Request metrics by API (count, latency, bytes, error codes, time on the event loop), and connection metrics."""

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.channel import Chunk
from cordwood.replication.measures import SECONDS, Clock, Histogram


class ApiMeasures:
    """The metrics of one API, on the hot path: updated when a request is taken and when its response leaves."""

    __slots__ = ("clock", "errors", "received_bytes", "seconds", "sent_bytes", "unanswered")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = Histogram(SECONDS)
        """Seconds from taking a request to writing its response to the socket."""
        self.received_bytes = self.sent_bytes = 0
        self.unanswered = 0
        """Requests without a response (Produce with acks=0), whose latency is unknown."""
        self.errors: Counter[int] = Counter()
        """Responses with an error, by Kafka error code."""

    def done(self, size: int, chunks: Sequence[Chunk], seconds: float) -> None:
        """Count a completed request of `size` bytes; no chunks if it gets no response."""
        self.received_bytes += size
        if chunks:
            for chunk in chunks:
                self.sent_bytes += len(chunk) if isinstance(chunk, bytes) else chunk.size
            self.seconds.add(seconds)
        else:
            self.unanswered += 1


class Held(NamedTuple):
    """A request, and how long it blocked the event loop in one step."""

    seconds: float
    api: str
    client: str
    client_id: str
    correlation_id: int


class ThrottleMeasures:
    """The metrics of client quotas, by the key of the limit."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.requests: Counter[str] = Counter()
        """Throttled requests and delayed connections."""
        self.seconds: dict[str, float] = {}
        """Sum of their throttle times."""
        self.muted = 0
        """Connections of which nothing is read now."""

    def add(self, key: str, seconds: float) -> None:
        self.requests[key] += 1
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds


class RequestMeasures:
    """The metrics of all APIs, of malformed requests and of client connections."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.longest_held_s = 0.0
        """Longest blocking of the event loop by one request since the last call of `longest_held`."""
        self._longest_held: Held | None = None
        self.by_api: Mapping[int, ApiMeasures] = {key: ApiMeasures(clock) for key in ApiKey}
        self.throttled = ThrottleMeasures(clock)
        self.malformed = 0
        """Malformed requests; each closed its connection."""
        self.connections_opened = self.connections_refused = self.connections_evicted = 0
        """Connection counts. A refused connection counts as opened, too; an evicted one was idle."""

    def note_held(self, held: Held) -> None:
        """Record a request that blocked the event loop for longer than `longest_held_s`."""
        self.longest_held_s, self._longest_held = held.seconds, held

    def longest_held(self) -> Held | None:
        """Return and reset the request that blocked the event loop longest since the last call."""
        longest, self._longest_held = self._longest_held, None
        self.longest_held_s = 0.0
        return longest


class Measured(Generator[Any, Any, Any]):
    """An awaitable around `work` that calls `held` with the duration of each step in seconds."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock: Clock, held: Callable[[float], None]) -> None:
        self._work, self._clock, self._held = work, clock, held

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Run the next step and return the awaited future."""
        began = self._clock()
        try:
            return self._work.send(value)
        finally:
            self._held(self._clock() - began)

    def throw(self, *error: Any) -> Any:
        """Run the next step after an error or a cancellation."""
        began = self._clock()
        try:
            return self._work.throw(*error)
        finally:
            # The error leads to this frame by its traceback: with the error it would be a reference cycle.
            del error
            self._held(self._clock() - began)
