"""Figures of a run: an exceeded limit is an anomaly, and the line of a figure has its limits beside it."""

import pytest

from cordwood.chaos.live.figures import Figures, ValueLimit, quantile

AWAY_S, RATE = "away_s", "rate_mb_s"


@pytest.fixture
def figures() -> Figures:
    """Return ten times from 0.1 to 1 s."""
    figures = Figures()
    for tenth in range(1, 11):
        figures.add(AWAY_S, tenth / 10)
    return figures


@pytest.mark.parametrize(
    ("limit", "is_kept"),
    [
        (ValueLimit(AWAY_S, 0.5, share=0.5), True),
        (ValueLimit(AWAY_S, 0.4, share=0.5), False),
        (ValueLimit(AWAY_S, 1.0, share=0.99), True),
        (ValueLimit(AWAY_S, 0.9), False),
        (ValueLimit(AWAY_S, 0.1, is_least=True), True),
        (ValueLimit(AWAY_S, 0.2, is_least=True), False),
        (ValueLimit("never_measured_s", 0.0), True),
    ],
    ids=str,
)
def test_what_exceeds_a_limit_is_an_anomaly(figures: Figures, limit: ValueLimit, is_kept: bool) -> None:
    assert [anomaly.kind for anomaly in figures.exceeded([limit])] == ([] if is_kept else ["limit"])


def test_a_line_has_the_limits_beside_the_figure(figures: Figures) -> None:
    figures.add("in_sync_again_s", 2.0)
    limits = [
        ValueLimit(AWAY_S, 0.4, share=0.5),
        ValueLimit(AWAY_S, 2.5, share=0.99),
        ValueLimit(RATE, 60, is_least=True),
    ]
    assert list(figures.lines(limits)) == [
        "away_s: p50 0.5 (at most 0.4), p99 1 (at most 2.5)",
        "rate_mb_s: not measured",
        "in_sync_again_s: p50 2, max 2",
    ]
    [exceeded] = figures.exceeded(limits)
    assert exceeded.sentence == "away_s: p50 0.5 (at most 0.4)."


def test_a_summary_has_quantiles_and_bounds(figures: Figures) -> None:
    assert figures.summary() == {AWAY_S: {"p50": 0.5, "p99": 1.0, "min": 0.1, "max": 1.0}}


def test_the_values_of_a_round_are_those_since_the_last_one(figures: Figures) -> None:
    assert figures.recent().startswith("away_s 0.1, 0.2")
    figures.add(RATE, 61.5)
    assert (figures.recent(), figures.recent()) == ("rate_mb_s 61.5", "")


def test_a_quantile_is_a_value_that_was_measured() -> None:
    assert [quantile([3, 1, 2], share) for share in (0, 0.5, 0.99, 1)] == [1, 2, 3, 3]
