"""Metrics of queues over HTTP."""

from collections.abc import Iterator

from cordwood.cluster.http.metrics.family import Family, Row, counter, counters, gauge
from cordwood.cluster.http.watched import Watched


def _acknowledgements(watched: Watched) -> Iterator[Row]:
    yield ("accepted",), watched.queues.acknowledgements
    yield ("refused",), watched.queues.refused_acknowledgements


FAMILIES: tuple[Family, ...] = (
    counter("http_queue_takes", "Requests for records of queues over HTTP.", lambda watched: watched.queues.takes),
    counter(
        "http_queue_records",
        "Records that HTTP clients have taken from queues.",
        lambda watched: watched.queues.taken_records,
    ),
    counters(
        "http_queue_acknowledgements",
        "Receipts that HTTP clients acknowledged, released, rejected or renewed. Refused ones hold no lock.",
        ("outcome",),
        _acknowledgements,
    ),
    gauge(
        "http_queue_held_records",
        "Records that HTTP clients of this broker hold under a lock.",
        lambda watched: watched.queues.held(),
    ),
)
