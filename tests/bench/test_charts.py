"""SVG charts: bar lengths, line positions, axes, and well-formed markup."""

from xml.etree import ElementTree

import pytest

from cordwood.bench.charts import bars, lines, number

SVG = "{http://www.w3.org/2000/svg}"


def widths(svg: str) -> list[float]:
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [float(each.attrib["width"]) for each in found if each.attrib["height"] == "14"]


def points(svg: str) -> list[tuple[float, float]]:
    line = next(ElementTree.fromstring(svg).iter(f"{SVG}polyline"))
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.attrib["points"].split())]


def test_bars_share_one_scale() -> None:
    small, large, other = widths(bars("t", "MB/s", {"a": {"x": 10.0, "y": 40.0}, "b": {"x": 20.0}}))
    assert (large / small, other / small) == (pytest.approx(4, rel=0.01), pytest.approx(2, rel=0.01))


def test_a_mark_beyond_every_bar_is_on_the_scale_too() -> None:
    unmarked, marked = (
        widths(bars("t", "MB/s", {"a": {"x": 10.0}}, mark=mark))[0] for mark in (None, ("asked", {"a": 20.0}))
    )
    assert marked == pytest.approx(unmarked / 2, rel=0.01)


def test_a_tenfold_is_as_far_everywhere_on_a_logarithmic_axis() -> None:
    (first, _), (second, _), (third, _) = points(
        lines("t", "ms", {"s": [(1, 5.0), (10, 5.0), (100, 5.0)]}, x_label="n")
    )
    assert third - second == pytest.approx(second - first, abs=0.2)


def test_more_is_higher_and_twice_as_much_twice_as_high() -> None:
    (_, four), (_, two), (_, zero) = points(lines("t", "ms", {"s": [(1, 4.0), (2, 2.0), (3, 0.0)]}, x_label="n"))
    assert zero - four == pytest.approx(2 * (zero - two), abs=0.2)
    assert four < two < zero


def test_words_that_are_markup_are_text() -> None:
    title = ElementTree.fromstring(bars("a < b & c", "<unit>", {"<p99>": {"x": 1.0}})).find(f"{SVG}title")
    assert title is not None
    assert title.text == "a < b & c"


def test_nothing_measured_is_still_a_picture() -> None:
    assert not widths(bars("t", "ms", {}))
    assert widths(bars("t", "ms", {"a": {"x": 0.0}})) == [1.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.05219, "0.0522"), (0.5, "0.5"), (31.44, "31.4"), (100.4, "100"), (2700, "2,700"), (3.0, "3")],
)
def test_three_figures_count(value: float, text: str) -> None:
    assert number(value) == text
