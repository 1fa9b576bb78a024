"""Prometheus' text format, as lines, so that the writer can yield to the event loop after any line.

prometheus_client renders a metric in one call, which takes seven times as long: 6 ms for a thousand samples.
(https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format)
"""

from collections.abc import Iterator

from cordwood.cluster.http.metrics.family import Family
from cordwood.cluster.http.watched import Watched
from cordwood.replication.measures import Histogram


def lines_of(family: Family, watched: Watched) -> Iterator[str]:
    """Yield the family's HELP and TYPE lines, then its samples, each with its line end; "" for an item without one."""
    yield f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind.value}\n"
    for row in family.read(watched):
        if row is None:
            yield ""
            continue
        values, number = row
        labels = list(map(_label, family.labels, values))
        if isinstance(number, Histogram):
            # All lines together: they must be of the same instant.
            yield "".join(_lines_of_histogram(family.name, labels, number))
        else:
            yield _line(family.name, labels, number)


def _lines_of_histogram(name: str, labels: list[str], histogram: Histogram) -> Iterator[str]:
    for bound, count in histogram.cumulative():
        yield _line(f"{name}_bucket", [*labels, _label("le", f"{bound:g}")], count)
    yield _line(f"{name}_bucket", [*labels, _label("le", "+Inf")], histogram.count)
    yield _line(f"{name}_sum", labels, histogram.sum)
    yield _line(f"{name}_count", labels, histogram.count)


def _line(name: str, labels: list[str], number: float) -> str:
    # `+ 0` turns True and False into numbers.
    return f"{name}{{{','.join(labels)}}} {number + 0}\n" if labels else f"{name} {number + 0}\n"


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'
