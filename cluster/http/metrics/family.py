"""One metric as a row of a table: its name, its kind, its meaning, its labels, and how it is read from the broker."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from cordwood.cluster.http.watched import Watched
from cordwood.replication.measures import Histogram

Row = tuple[tuple[str, ...], float | Histogram]
"""Values of the labels, and the number; in a histogram's family the histogram."""


class Kind(Enum):
    """By the words of Prometheus' text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. Units last, and `_total` behind a counter's (https://prometheus.io/docs/practices/naming/).

    `read` may be a generator that others run beside: what it goes through must be a copy where it may change meanwhile.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[Watched], Iterable[Row]]


def gauge(name: str, meaning: str, read: Callable[[Watched], float]) -> Family:
    """One number that goes up and down."""
    return Family(f"cordwood_{name}", Kind.GAUGE, meaning, (), lambda watched: (((), read(watched)),))


def gauges(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Iterable[Row]]) -> Family:
    return Family(f"cordwood_{name}", Kind.GAUGE, meaning, labels, read)


def counter(name: str, meaning: str, read: Callable[[Watched], float]) -> Family:
    """One number that only grows, until the broker starts anew."""
    return Family(f"cordwood_{name}_total", Kind.COUNTER, meaning, (), lambda watched: (((), read(watched)),))


def counters(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Iterable[Row]]) -> Family:
    return Family(f"cordwood_{name}_total", Kind.COUNTER, meaning, labels, read)


def histogram(name: str, meaning: str, read: Callable[[Watched], Histogram | None]) -> Family:
    """How numbers spread; no sample where there is nothing to measure."""

    def rows(watched: Watched) -> Iterable[Row]:
        found = read(watched)
        return () if found is None else (((), found),)

    return Family(f"cordwood_{name}", Kind.HISTOGRAM, meaning, (), rows)


def histograms(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Iterable[Row]]) -> Family:
    return Family(f"cordwood_{name}", Kind.HISTOGRAM, meaning, labels, read)
