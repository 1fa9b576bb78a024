"""Truncation of a follower by leader epoch: the cases of KIP-101 and KIP-279, and random logs that must converge."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.replication.follower import ImpossibleAnswer, check_epochs, first_difference, truncation_end
from cordwood.storage.batch import peek
from cordwood.storage.epochs import EpochStart, LeaderEpochs
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, encode
from cordwood.storage.types import NO_EPOCH, LeaderEpoch, Offset


def epochs(*starts: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(tuple(EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in starts))


@pytest.mark.parametrize(
    ("last_epoch", "follower_end", "difference"),
    [
        pytest.param(5, 15, None, id="the whole log"),
        pytest.param(5, 14, None, id="a part of the last epoch"),
        pytest.param(5, 16, (5, 15), id="more of the last epoch"),
        pytest.param(2, 13, None, id="the first epoch to its end"),
        pytest.param(2, 14, (2, 13), id="more of the first epoch"),
        pytest.param(3, 13, (2, 13), id="an epoch that the leader lacks, of which no record is after the first"),
        pytest.param(4, 20, (2, 13), id="an epoch that the leader lacks"),
        pytest.param(6, 15, (5, 15), id="a later epoch"),
        pytest.param(1, 10, None, id="all before the leader's start"),
        pytest.param(1, 11, (NO_EPOCH, 10), id="more than lies before the leader's start"),
        pytest.param(NO_EPOCH, 15, None, id="no record, at the leader's end"),
        pytest.param(NO_EPOCH, 16, (NO_EPOCH, 15), id="no record, after the leader's end"),
    ],
)
def test_a_leader_says_where_a_followers_log_parts(
    last_epoch: int, follower_end: int, difference: tuple[int, int] | None
) -> None:
    """The leader has epoch 2 from offset 10 and epoch 5 from offset 13; its log end is 15."""
    assert first_difference(epochs((2, 10), (5, 13)), 15, last_epoch, follower_end) == difference


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "end"),
    [
        pytest.param(5, 14, 14, id="less of the last epoch"),
        pytest.param(5, 20, 15, id="more of the last epoch"),
        pytest.param(2, 12, 12, id="less of the first epoch"),
        pytest.param(2, 14, 13, id="more of the first epoch"),
        pytest.param(3, 12, 13, id="an epoch that the follower lacks: it asks again from where its older one ends"),
        pytest.param(1, 8, 10, id="an epoch below all: nothing is common"),
        pytest.param(NO_EPOCH, 12, 12, id="no epoch, and an end within the log"),
        pytest.param(NO_EPOCH, 20, 15, id="no epoch, and an end after the log"),
    ],
)
def test_a_follower_cuts_where_both_may_agree(leader_epoch: int, leader_end: int, end: int) -> None:
    """The follower has epoch 2 from offset 10 and epoch 5 from offset 13; its log end is 15."""
    assert truncation_end(epochs((2, 10), (5, 13)), 15, leader_epoch, leader_end) == end


@pytest.mark.parametrize(
    ("stamped", "is_sound"), [((2, 2, 3), True), ((2, 3, 2), False), ((1, 2), False), ((4,), False)]
)
def test_the_epochs_of_batches_do_not_fall(stamped: tuple[int, ...], is_sound: bool) -> None:
    """The follower's last batch has epoch 2, and its leader epoch 3."""
    header = peek(encode([Record(0, 0, b"", b"")]))
    batches = [header._replace(leader_epoch=epoch) for epoch in stamped]
    with nullcontext() if is_sound else pytest.raises(CorruptBatch):
        check_epochs(batches, 2, 3)


def test_no_epoch_ends_below_the_first_offset() -> None:
    with pytest.raises(ImpossibleAnswer):
        truncation_end(epochs((2, 0)), 5, 2, -1)


class Replica:
    """A log, as the leader epoch of each record."""

    def __init__(self, *records: int) -> None:
        self.records = list(records)

    @property
    def epochs(self) -> LeaderEpochs:
        starts = [at for at, epoch in enumerate(self.records) if at == 0 or self.records[at - 1] != epoch]
        return LeaderEpochs(tuple(EpochStart(LeaderEpoch(self.records[at]), Offset(at)) for at in starts))

    def follow(self, leader: "Replica") -> int:
        """Truncate until the leader can replicate from this log's end. Return the number of truncations."""
        rounds = 0
        while (difference := self.difference_to(leader)) is not None:
            end = truncation_end(self.epochs, len(self.records), *difference)
            assert end < len(self.records), "each round gives something up"
            del self.records[end:]
            rounds += 1
        return rounds

    def difference_to(self, leader: "Replica") -> tuple[int, int] | None:
        return first_difference(leader.epochs, len(leader.records), self.epochs.latest, len(self.records))


def test_a_log_that_is_a_part_of_the_leaders_is_kept() -> None:
    follower = Replica(1, 1, 2)
    assert follower.follow(Replica(1, 1, 2, 2, 3)) == 0
    assert follower.records == [1, 1, 2]


def test_what_the_leader_of_the_same_epoch_lacks_is_given_up() -> None:
    follower = Replica(1, 1, 1, 1)
    follower.follow(Replica(1, 1))
    assert follower.records == [1, 1]


def test_an_epoch_that_the_leader_never_had_goes_as_a_whole() -> None:
    follower = Replica(1, 1, 2, 2)
    follower.follow(Replica(1, 1, 3))
    assert follower.records == [1, 1]


def test_several_epochs_apart_are_walked_back_one_by_one() -> None:
    follower = Replica(1, 1, 2, 4, 4)
    assert follower.follow(Replica(1, 3, 3, 3, 5)) > 1
    assert follower.records == [1]


def test_an_empty_log_fits_every_leader() -> None:
    assert Replica().follow(Replica(1, 2)) == 0


@st.composite
def logs_that_part(draw: st.DrawFn) -> tuple[Replica, Replica]:
    """Draw two logs with a common prefix. No epoch has two leaders."""
    common = sorted(draw(st.lists(st.integers(0, 3), max_size=8)))
    even = sorted(draw(st.lists(st.sampled_from([4, 6, 8]), max_size=6)))
    odd = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=6)))
    return Replica(*common, *even), Replica(*common, *odd)


@given(logs_that_part())
def test_a_follower_ends_up_with_a_part_of_its_leaders_log_and_loses_nothing_they_share(
    logs: tuple[Replica, Replica],
) -> None:
    follower, leader = logs
    shared = 0
    while shared < min(len(follower.records), len(leader.records)):
        if follower.records[shared] != leader.records[shared]:
            break
        shared += 1
    follower.follow(leader)
    assert follower.records == leader.records[:shared]
