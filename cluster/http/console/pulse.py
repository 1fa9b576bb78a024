"""The data of the console's charts of one broker: counters, of which two samples make a rate."""

import msgspec

from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.measures import Histogram


class Spread(msgspec.Struct, frozen=True):
    """A histogram of seconds: bounds, the number of values up to each bound, and the total number."""

    bounds: list[float]
    counts: list[int]
    count: int


class Pulse(msgspec.Struct, frozen=True):
    """Counters of this broker since its start. `/metrics` has these and more."""

    broker_id: int
    why_not_ready: str | None
    connections: int
    produced_bytes: int
    """Bytes of Produce requests."""
    fetched_bytes: int
    """Bytes of Fetch responses."""
    produce_seconds: Spread
    flush_seconds: Spread
    """Group commits: one fdatasync for all batches that were waiting."""


def pulse_of(watched: Watched) -> Pulse:
    """Return the current counters."""
    produce, fetch = watched.requests.by_api[ApiKey.PRODUCE], watched.requests.by_api[ApiKey.FETCH]
    return Pulse(
        broker_id=int(watched.broker_id),
        why_not_ready=watched.why_not_ready(),
        connections=watched.connection_count(),
        produced_bytes=produce.received_bytes,
        fetched_bytes=fetch.sent_bytes,
        produce_seconds=_spread(produce.seconds),
        flush_seconds=_spread(watched.flushes.seconds),
    )


def _spread(histogram: Histogram) -> Spread:
    pairs = list(histogram.cumulative())
    return Spread([bound for bound, _ in pairs], [count for _, count in pairs], histogram.count)
