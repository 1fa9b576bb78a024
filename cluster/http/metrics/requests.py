"""Metrics of Kafka requests by API, and of Kafka connections."""

from collections.abc import Callable, Iterator

from kio.schema.errors import ErrorCode

from cordwood.cluster.http.metrics.family import Family, Row, counter, counters, gauge, histograms
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.request_measures import ApiMeasures
from cordwood.replication.measures import Histogram

_NAMES = {key: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}
"""The names of the APIs in Kafka's documentation."""
_CODES = frozenset(map(int, ErrorCode))


def _of_each_api(number: Callable[[ApiMeasures], float | Histogram]) -> Callable[[Watched], Iterator[Row]]:
    """Read a number of every API that was used."""

    def rows(watched: Watched) -> Iterator[Row]:
        by_api = watched.requests.by_api
        return (((_NAMES[key],), number(by_api[key])) for key in ApiKey if by_api[key].received_bytes)

    return rows


def _errors(watched: Watched) -> Iterator[Row]:
    for key in ApiKey:
        for code, count in list(watched.requests.by_api[key].errors.items()):
            name = ErrorCode(code).name.upper() if code in _CODES else str(code)
            yield (_NAMES[key], name), count


FAMILIES: tuple[Family, ...] = (
    histograms(
        "request_duration_seconds",
        "Time from the start of a request's processing until its response is written to the socket. Fetch,"
        " JoinGroup and SyncGroup include the time for which the client allows the broker to wait.",
        ("api",),
        _of_each_api(lambda api: api.seconds),
    ),
    counters(
        "unanswered_requests",
        "Requests without a response (acks=0). Their duration is not measured.",
        ("api",),
        _of_each_api(lambda api: api.unanswered),
    ),
    counters(
        "request_received_bytes",
        "Bytes of requests, counted when they are answered.",
        ("api",),
        _of_each_api(lambda api: api.received_bytes),
    ),
    counters("request_sent_bytes", "Bytes of responses.", ("api",), _of_each_api(lambda api: api.sent_bytes)),
    counters(
        "request_errors",
        "Responses with a Kafka error code; for Produce and Fetch, partitions with one. Responses for"
        " several resources without a top-level error code are not counted.",
        ("api", "error"),
        _errors,
    ),
    counter(
        "malformed_requests",
        "Malformed requests. Each one closed its connection.",
        lambda watched: watched.requests.malformed,
    ),
    gauge("connections", "Open connections of the Kafka protocol.", lambda watched: watched.connection_count()),
    counter(
        "connections_opened",
        "Connections that were opened, including refused ones.",
        lambda watched: watched.requests.connections_opened,
    ),
    counter(
        "connections_refused",
        "Connections refused because of max.connections or max.connections.per.ip, while no connection was"
        " idle. Connections of brokers that replicate from this one are still accepted.",
        lambda watched: watched.requests.connections_refused,
    ),
    counter(
        "connections_evicted",
        "Idle connections that were closed to make room for new ones.",
        lambda watched: watched.requests.connections_evicted,
    ),
    counters(
        "throttled",
        "Requests that were throttled by a client quota, by the limit; for connection_creation_rate, connections that"
        " were delayed or closed.",
        ("quota",),
        lambda watched: [((key,), count) for key, count in watched.requests.throttled.requests.items()],
    ),
    counters(
        "throttle_seconds",
        "Sum of the throttle times that clients were given, by the limit.",
        ("quota",),
        lambda watched: [((key,), seconds) for key, seconds in watched.requests.throttled.seconds.items()],
    ),
    gauge(
        "connections_muted",
        "Connections of throttled clients, of which no request is read now.",
        lambda watched: watched.requests.throttled.muted,
    ),
)
