"""The leader epochs of a log, and the end offset of an epoch, to which a follower truncates (KIP-101, KIP-279)."""

import pytest

from cordwood.storage.epochs import EpochRange, LeaderEpochs
from cordwood.storage.types import LeaderEpoch, Offset


def epochs(*starts: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, offset in starts:
        made.assign(epoch, offset)
    return made


def starts(of: LeaderEpochs) -> list[tuple[int, int]]:
    return [(int(epoch), int(offset)) for epoch, offset in of]


def test_an_epoch_begins_with_its_first_batch() -> None:
    of = epochs((0, 0), (0, 5), (3, 9), (3, 12))
    assert starts(of) == [(0, 0), (3, 9)]
    assert of.latest == 3
    assert [of.epoch_at(offset) for offset in (0, 8, 9, 100)] == [0, 0, 3, 3]


def test_nothing_is_known_of_an_empty_log() -> None:
    of = LeaderEpochs()
    assert (of.latest, of.epoch_at(7), of.end_of(3, 0)) == (-1, -1, (-1, -1))


def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end() -> None:
    of = epochs((1, 0), (4, 10))
    assert of.end_of(1, 20) == (1, 10)
    assert of.end_of(4, 20) == (4, 20)


def test_a_moved_start_of_the_first_epoch_is_written() -> None:
    of = epochs((1, 0), (4, 10))
    of.written(of.encode())
    of.truncate_start(7)
    content = of.unwritten()
    assert content is not None
    assert starts(LeaderEpochs.decode(content)) == [(1, 7), (4, 10)]


REFETCHED = {
    "without gaps": ((0, 2, 6), (4, 6, 12)),
    "with a gap where epoch 4 begins": ((0, 2, 4), (4, 9, 12)),
    "with a gap before the end": ((0, 2, 4),),
    "of none of the known epochs": ((1, 2, 3), (2, 3, 12)),
    "none": (),
}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("without gaps", [(0, 0), (4, 6), (7, 20)]),
        ("with a gap where epoch 4 begins", [(0, 0), (3, 4), (4, 5), (7, 20)]),
        ("with a gap before the end", [(0, 0), (3, 4), (4, 5), (7, 20)]),
        ("of none of the known epochs", [(0, 0), (1, 2), (2, 3), (4, 12), (7, 20)]),
        ("none", [(0, 0), (3, 4), (4, 5), (7, 20)]),
    ],
)
def test_refetched_batches_tell_their_epochs_and_a_gap_tells_none(found: str, expected: list[tuple[int, int]]) -> None:
    of = epochs((0, 0), (3, 4), (4, 5), (7, 20))
    of.correct(
        2, 12, [EpochRange(LeaderEpoch(epoch), Offset(base), Offset(end)) for epoch, base, end in REFETCHED[found]]
    )
    assert starts(of) == expected


def test_entries_are_unwritten_until_the_file_has_them_all() -> None:
    of = epochs((1, 0))
    first = of.unwritten()
    assert first is not None
    of.assign(4, 10)
    of.written(first)
    second = of.unwritten()
    assert second is not None
    assert starts(LeaderEpochs.decode(second)) == [(1, 0), (4, 10)]
    of.written(second)
    assert of.unwritten() is None


def test_a_follower_that_asks_for_an_unknown_epoch_hears_of_the_one_before() -> None:
    of = epochs((1, 0), (4, 10), (6, 15))
    assert of.end_of(5, 20) == (4, 15)
    assert of.end_of(99, 20) == (6, 20)
    assert of.end_of(0, 20) == (-1, -1)


def test_a_truncated_end_takes_the_epochs_that_began_there() -> None:
    of = epochs((1, 0), (4, 10), (6, 15))
    of.truncate_end(10)
    assert starts(of) == [(1, 0)]


def test_a_raised_start_keeps_the_epoch_that_contains_it() -> None:
    of = epochs((1, 0), (4, 10), (6, 15))
    of.truncate_start(12)
    assert starts(of) == [(4, 12), (6, 15)]
    of.truncate_start(15)
    assert starts(of) == [(6, 15)]
    of.truncate_start(99)
    assert starts(of) == [(6, 99)]


def test_entries_that_a_new_leader_contradicts_are_stale() -> None:
    of = epochs((1, 0), (4, 10), (6, 15))
    of.assign(7, 10)
    assert starts(of) == [(1, 0), (7, 10)]


def test_epochs_survive_encoding() -> None:
    of = epochs((1, 0), (4, 10), (2**31 - 1, 2**60))
    assert starts(LeaderEpochs.decode(of.encode())) == starts(of)
    assert starts(LeaderEpochs.decode(b"")) == []
