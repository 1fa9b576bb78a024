"""Where partitions go: evenly over the brokers, leaders and followers alike."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.kafka.call import Refused
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.topics import check_name, place


@given(
    brokers=st.integers(1, 9),
    partitions=st.integers(1, 60),
    replication_factor=st.integers(1, 9),
    first=st.integers(0, 100),
)
def test_leaders_go_round_and_replicas_are_distinct(
    brokers: int, partitions: int, replication_factor: int, first: int
) -> None:
    ids = [BrokerId(10 + at) for at in range(brokers)]
    if replication_factor > brokers:
        with pytest.raises(Refused, match="only"):
            place(ids, partitions, replication_factor, first)
        return
    placed = place(ids, partitions, replication_factor, first)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == len(replicas) == replication_factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in ids) <= 1


def test_the_followers_of_a_broker_are_on_all_others() -> None:
    ids = [BrokerId(at) for at in range(4)]
    followers = Counter(replicas[1] for replicas in place(ids, 12, 2, 0) if replicas[0] == 0)
    assert followers == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("name", ["a", "A-b_c.1", "x" * 249, "__mine", "..."])
def test_names_that_may_be(name: str) -> None:
    check_name(name)
