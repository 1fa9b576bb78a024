"""Progress of reassignments: bytes left, rates and minutes."""

import pytest

from cordwood.cluster.operations.moves import WINDOW_S, MoveProgress, MoveRates, minutes_left, progress_of

PLACE = ("t", 0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({1: 100, 2: 90, 3: 10, 4: 0}, MoveProgress(200, 190)),
        ({2: 90, 3: 100, 4: 90}, MoveProgress(180, 0)),
        ({1: 100, 3: 10}, MoveProgress(200, None)),
        ({3: 10, 4: 10}, MoveProgress(None, None)),
    ],
    ids=["part of one", "more than the source", "a broker does not answer", "no source answers"],
)
def test_what_is_left_is_what_the_largest_old_replica_has_more(sizes: dict[int, int], expected: MoveProgress) -> None:
    assert progress_of((3, 4, 1, 2), (3, 4), sizes) == expected


def test_a_move_that_only_removes_has_nothing_left() -> None:
    assert progress_of((1, 2), (), {1: 100, 2: 100}) == MoveProgress(0, 0)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rates = MoveRates()
    assert rates.observe({PLACE: 1000}, 0.0) == {PLACE: None}
    assert rates.observe({PLACE: 900}, 1.0) == {PLACE: 100.0}
    for second in range(2, 101):
        found = rates.observe({PLACE: 900 - second}, float(second))
    assert found == {PLACE: pytest.approx(1.0)}
    assert rates.observe({PLACE: 800}, 100 + 10 * WINDOW_S)[PLACE] == 0.0


def test_a_rate_begins_anew_with_another_target_and_after_the_end() -> None:
    rates = MoveRates()
    rates.observe({PLACE: 10}, 0.0)
    assert rates.observe({PLACE: 50}, 1.0) == {PLACE: None}
    assert rates.observe({PLACE: 40}, 2.0) == {PLACE: 10.0}
    assert rates.observe({PLACE: None}, 3.0) == {PLACE: None}
    assert rates.observe({}, 4.0) == {}
    assert rates.observe({PLACE: 30}, 5.0) == {PLACE: None}


@pytest.mark.parametrize(
    ("left", "rate", "expected"),
    [(600, 1.0, 10.0), (1, 1e9, 0.1), (0, None, 0.0), (1, None, None), (1, 0.0, None), (None, 1.0, None)],
)
def test_minutes_are_known_where_bytes_and_a_rate_are(left: int | None, rate: float | None, expected: object) -> None:
    assert minutes_left(left, rate) == expected
