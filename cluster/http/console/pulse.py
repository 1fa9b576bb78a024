"""What the console's charts of one broker are drawn from: counts that only grow, so that two of them make a rate."""

import msgspec

from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.measures import Histogram


class Spread(msgspec.Struct, frozen=True):
    """A histogram of seconds: for each bound how many were not above it, and how many there were in all."""

    bounds: list[float]
    counts: list[int]
    count: int


class Pulse(msgspec.Struct, frozen=True):
    """This broker since it started. `/metrics` has the same and much more."""

    broker_id: int
    why_not_ready: str | None
    connections: int
    produced_bytes: int
    """Of Produce requests."""
    fetched_bytes: int
    """Of answers to Fetch requests."""
    produce_seconds: Spread
    flush_seconds: Spread
    """Group commits: fdatasync of all that was written meanwhile."""


def pulse_of(watched: Watched) -> Pulse:
    """As it is now."""
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
