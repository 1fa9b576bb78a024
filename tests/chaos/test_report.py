"""The HTML report of a run: the proof of each anomaly, the timeline, and no external resources."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from run_fixture import ToldRun

from cordwood.chaos.report.axes import clock, linear_to, logarithmic_to, ticks
from cordwood.chaos.report.series import SLICES_MAX, Answers, longest_silence_s, series

VOID = {"meta"}


class Page(HTMLParser):
    """The contents of a page: its tags, the text of each element with an id, and all addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self._open: list[str | None] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element that begins has an end"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "data", "action", "srcset")]
        if tag not in VOID:
            self._open.append(named.get("id"))

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.handle_data(" ")
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in self._open:
            if name is not None:
                self.texts[name] = self.texts.get(name, "") + data


def test_a_lost_record_is_shown_with_the_operations_that_prove_it() -> None:
    shown = Page(ToldRun().lost(40).page("lost-write 1")).texts["anomalies"]
    assert "lost-write" in shown
    assert "send 0 40 0 " in shown


def test_a_run_without_anomalies_says_so() -> None:
    assert Page(ToldRun().page()).texts["anomalies"].strip() == "None."


def test_faults_are_on_the_timeline_and_in_the_table() -> None:
    run = ToldRun().struck("kill", "broker 2: killed", 10, 20).struck("pause", "broker 1: stand still", 30, 31)
    page = Page(run.page())
    assert "broker 2: killed" in page.texts["timeline"]
    assert "pause" in page.texts["timeline"]
    assert "0:10" in page.texts["faults"]
    assert "broker 1: stand still" in page.texts["faults"]


def test_nothing_is_loaded_from_anywhere() -> None:
    text = ToldRun().struck("kill", "broker 2: killed", 10, 20).lost(3).page()
    page = Page(text)
    assert page.addresses == []
    assert not {"link", "img", "iframe", "object", "base"} & set(page.tags)
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|import\(", text)


def test_what_was_said_by_others_is_text_and_never_markup() -> None:
    page = Page(ToldRun().struck("kill", "<script>alert(1)</script>", 1, 2).page("<b>&\"'"))
    assert page.tags.count("script") == 2
    assert "b" not in page.tags
    assert "<script>alert(1)</script>" in page.texts["faults"]


def test_silence_shows_in_every_series() -> None:
    reported = ToldRun().silent(20, 30).page()
    drawn = Page(reported).texts["series"]
    assert '"acknowledged_per_s": [4.0' in drawn
    numbers = re.search(r'"partitions_unserved": \[([^]]*)\]', drawn)
    assert numbers is not None
    assert [int(number) for number in numbers[1].split(",")] == [0] * 20 + [2] * 10 + [0] * 30


def answers(*rows: tuple[int, float, float]) -> Answers:
    """Return answers of rows (partition, sent, answered), in seconds."""
    partition, sent, answered = np.array(rows).T
    return Answers(partition.astype(int), sent, answered, np.ones(len(rows), dtype=bool))


def test_quantiles_are_of_each_slice() -> None:
    reported = series(answers((0, 0.0, 0.1), (0, 0.0, 0.3), (0, 0.0, 0.9), (0, 2.0, 2.5)), partitions=1, duration_s=3)
    assert reported.p50_ms == [300.0, None, 500.0]
    assert reported.p99_ms == [900.0, None, 500.0]
    assert reported.acknowledged_per_s == [3, 0, 1]


def test_a_night_has_no_more_slices_than_a_screen_shows() -> None:
    reported = series(answers((0, 0.0, 0.1), (0, 35_000.0, 35_001.0)), partitions=1, duration_s=36_000)
    assert len(reported.acknowledged_per_s) <= SLICES_MAX
    assert reported.duration_s == pytest.approx(36_000, abs=reported.slice_s)


def test_the_longest_silence_is_that_of_one_partition() -> None:
    rows = [(0, float(second), second + 0.1) for second in range(10)] + [(1, 0.0, 0.5), (1, 8.0, 8.5)]
    assert longest_silence_s(answers(*rows), 10) == pytest.approx(8.0)


def test_axes_have_round_numbers() -> None:
    assert list(linear_to(380, 100).lines()) == [0, 100, 200, 300]
    assert list(logarithmic_to(2, 3000, 100).lines()) == [1, 10, 100, 1000, 10_000]
    assert list(ticks(60)) == list(range(0, 61, 10))
    assert (clock(75), clock(3_723)) == ("1:15", "1:02:03")
