"""A Raft leader's replication progress of a follower: probe until the logs match, then pipeline; never move back."""

import pytest

from cordwood.cluster.metadata.raft.progress import Progress, majority_has


def test_entries_follow_each_other_without_waiting_once_the_log_fits() -> None:
    progress = Progress(next_index=10, counts=True)
    progress.confirmed(9)
    progress.sent(15)
    progress.sent(20)
    assert (progress.prev_index, progress.counted) == (20, 9)
    progress.confirmed(15)
    assert (progress.prev_index, progress.counted) == (20, 15)


def test_a_log_that_does_not_fit_is_asked_further_back() -> None:
    progress = Progress(next_index=10)
    assert progress.rejected(9, hint=4)
    assert progress.prev_index == 4
    assert progress.is_probing


def test_a_rejection_asks_at_least_one_further_back() -> None:
    progress = Progress(next_index=10)
    assert progress.rejected(9, hint=12)
    assert progress.prev_index == 8


def test_rejections_of_what_is_no_longer_asked_change_nothing() -> None:
    progress = Progress(next_index=10)
    progress.rejected(9, hint=4)
    assert not progress.rejected(9, hint=2)
    progress.confirmed(4)
    assert not progress.rejected(4, hint=0)
    assert progress.prev_index == 4


def test_what_was_confirmed_is_never_asked_again() -> None:
    progress = Progress(next_index=10)
    progress.confirmed(9)
    progress.sent(20)
    assert progress.rejected(20, hint=3)
    assert progress.prev_index == 9


def test_who_may_not_vote_is_not_counted() -> None:
    progress = Progress(next_index=10)
    progress.confirmed(9)
    assert (progress.stored, progress.counted) == (9, 0)


@pytest.mark.parametrize(
    ("ends", "index"), [([7], 7), ([7, 5, 0], 5), ([7, 0, 0], 0), ([9, 8, 7, 2, 1], 7), ([3, 3, 3, 0, 0], 3)]
)
def test_what_a_majority_has(ends: list[int], index: int) -> None:
    assert majority_has(ends) == index


def test_an_image_that_has_arrived_delays_no_other_one() -> None:
    progress = Progress(next_index=10)
    progress.sent_image(20, 1.0)
    progress.confirmed(9)
    assert progress.image_sent_at_s == 1.0, "it is still on its way"
    progress.confirmed(20)
    assert progress.image_sent_at_s is None
