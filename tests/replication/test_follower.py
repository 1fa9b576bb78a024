"""Where two logs part: KIP-101's and KIP-279's cases, and logs at random that must come to agree."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.replication.follower import first_difference, truncation_end
from cordwood.storage.epochs import EpochStart, LeaderEpochs
from cordwood.storage.types import LeaderEpoch, Offset


class Replica:
    """A log as the epochs of its records."""

    def __init__(self, *records: int) -> None:
        self.records = list(records)

    @property
    def epochs(self) -> LeaderEpochs:
        starts = [at for at, epoch in enumerate(self.records) if at == 0 or self.records[at - 1] != epoch]
        return LeaderEpochs(tuple(EpochStart(LeaderEpoch(self.records[at]), Offset(at)) for at in starts))

    def follow(self, leader: "Replica") -> int:
        """Cut until the leader can go on from our end; how often that was."""
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
    """Two logs that agree up to some point; no epoch was led by two brokers."""
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
