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
        "From the moment that a request is taken up to the one in which its answer goes to the socket. Fetch, JoinGroup"
        " and SyncGroup include the time for which the client is willing to wait.",
        ("api",),
        _of_each_api(lambda api: api.seconds),
    ),
    counters(
        "unanswered_requests",
        "Requests whose clients want no answer (acks=0). Their duration is not known.",
        ("api",),
        _of_each_api(lambda api: api.unanswered),
    ),
    counters(
        "request_received_bytes",
        "Bytes of requests, from the moment that they are answered.",
        ("api",),
        _of_each_api(lambda api: api.received_bytes),
    ),
    counters("request_sent_bytes", "Bytes of answers.", ("api",), _of_each_api(lambda api: api.sent_bytes)),
    counters(
        "request_errors",
        "Answers with one of Kafka's errors; for Produce and Fetch, partitions in such answers. An API that answers for"
        " several resources at once and has no error of its own is not counted.",
        ("api", "error"),
        _errors,
    ),
    counter(
        "malformed_requests",
        "Requests that nobody could make sense of, each of which ended its connection.",
        lambda watched: watched.requests.malformed,
    ),
    gauge("connections", "Open connections by Kafka's protocol.", lambda watched: watched.connection_count()),
    counter(
        "connections_opened",
        "Connections that were opened, refused ones included.",
        lambda watched: watched.requests.connections_opened,
    ),
    counter(
        "connections_refused",
        "Connections beyond max.connections or max.connections.per.ip, where none was idle that could make room. Only a"
        " broker that follows this one is served there.",
        lambda watched: watched.requests.connections_refused,
    ),
    counter(
        "connections_evicted",
        "Idle connections that were closed to make room for others.",
        lambda watched: watched.requests.connections_evicted,
    ),
)
