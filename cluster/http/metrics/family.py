"""A metric family: name, kind, meaning, labels, and the function that reads its samples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cordwood.cluster.http.watched import Watched
from cordwood.replication.measures import Histogram

_Item = TypeVar("_Item")

Row = tuple[tuple[str, ...], float | Histogram]
"""The label values, and the number; the histogram in a histogram's family."""
Rows = Iterable[Row | None]
"""None after an item that has no row, so that a scrape can end a step there."""


class MetricType(Enum):
    """The metric types of Prometheus' text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name: units last, `_total` after a counter's (https://prometheus.io/docs/practices/naming/).

    `read` may return a generator, which is suspended between samples: it must iterate over a copy of what may change.
    """

    name: str
    kind: MetricType
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[Watched], Rows]


def gauge(name: str, meaning: str, read: Callable[[Watched], float]) -> Family:
    """Return the family of one number that goes up and down."""
    return Family(f"cordwood_{name}", MetricType.GAUGE, meaning, (), lambda watched: (((), read(watched)),))


def gauges(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Rows]) -> Family:
    return Family(f"cordwood_{name}", MetricType.GAUGE, meaning, labels, read)


def gauge_over(
    name: str, meaning: str, items: Callable[[Watched], Iterable[_Item]], number: Callable[[_Item], int]
) -> Family:
    """Return the family of the sum of `number` over thousands of items."""

    def rows(watched: Watched) -> Rows:
        total = 0
        for item in list(items(watched)):
            total += number(item)
            yield None
        yield (), total

    return Family(f"cordwood_{name}", MetricType.GAUGE, meaning, (), rows)


def counter(name: str, meaning: str, read: Callable[[Watched], float]) -> Family:
    """Return the family of one number that only grows, until the broker restarts."""
    return Family(f"cordwood_{name}_total", MetricType.COUNTER, meaning, (), lambda watched: (((), read(watched)),))


def counters(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Iterable[Row]]) -> Family:
    return Family(f"cordwood_{name}_total", MetricType.COUNTER, meaning, labels, read)


def histogram(name: str, meaning: str, read: Callable[[Watched], Histogram | None]) -> Family:
    """Return the family of one histogram; without a sample if there is nothing to measure."""

    def rows(watched: Watched) -> Iterable[Row]:
        found = read(watched)
        return () if found is None else (((), found),)

    return Family(f"cordwood_{name}", MetricType.HISTOGRAM, meaning, (), rows)


def histograms(name: str, meaning: str, labels: tuple[str, ...], read: Callable[[Watched], Iterable[Row]]) -> Family:
    return Family(f"cordwood_{name}", MetricType.HISTOGRAM, meaning, labels, read)
