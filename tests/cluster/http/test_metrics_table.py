"""The table of metrics: unique names and units by Prometheus' conventions, and its current documentation page."""

from pathlib import Path

import pytest
from http_fixture import parsed

from cordwood.cluster.http.metrics.family import Family, MetricType, gauges
from cordwood.cluster.http.metrics.scrape import lines_of
from cordwood.cluster.http.metrics.table import FAMILIES, page

ROOT = Path(__file__).resolve().parents[3]

NO_BASE_UNITS = ("milliseconds", "minutes", "hours", "kilobytes", "megabytes", "percent")


def test_no_name_is_there_twice() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_and_units_are_as_prometheus_wants_them(family: Family) -> None:
    words = family.name.split("_")
    assert words[0] == "cordwood"
    assert not set(words) & set(NO_BASE_UNITS)
    assert (words[-1] == "total") == (family.kind is MetricType.COUNTER)
    assert family.meaning.endswith(".")
    assert "\n" not in family.meaning
    assert "le" not in family.labels


def test_the_page_in_the_documentation_is_current() -> None:
    reported = (ROOT / "docs/metrics.md").read_text()
    assert reported == page(), "run: python docs/generate"


def test_labels_may_be_any_text() -> None:
    odd = 'a "quoted" \\ name\nin two lines'
    family = gauges("odd", "Odd.", ("topic",), lambda _watched: [((odd,), 1.5)])
    text = "".join(lines_of(family, None))  # type: ignore[arg-type]
    assert parsed(text) == {("cordwood_odd", frozenset({("topic", odd)})): 1.5}
