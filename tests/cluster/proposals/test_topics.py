"""Replica placement of new topics, evenly over brokers and racks, and valid topic names."""

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import Assignment, BrokerId
from cordwood.cluster.metadata.image import BrokerImage
from cordwood.cluster.proposals.topics import check_name, place
from cordwood.storage.steps import at_once


def broker(broker_id: int, rack: str | None = None, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(BrokerId(broker_id), UUID(int=broker_id), 1, (), rack, is_fenced=is_fenced)


def placed_by(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, first: int
) -> tuple[Assignment, ...]:
    return at_once(place(brokers, partitions, replication_factor, first))


@given(
    brokers=st.integers(1, 9),
    partitions=st.integers(1, 60),
    replication_factor=st.integers(1, 9),
    first=st.integers(0, 100),
)
def test_leaders_go_round_and_replicas_are_distinct(
    brokers: int, partitions: int, replication_factor: int, first: int
) -> None:
    there = [broker(10 + at) for at in range(brokers)]
    if replication_factor > brokers:
        with pytest.raises(Refused, match="only"):
            placed_by(there, partitions, replication_factor, first)
        return
    placed = placed_by(there, partitions, replication_factor, first)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == len(replicas) == replication_factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[one.id] for one in there) <= 1


def test_the_followers_of_a_broker_are_on_all_others() -> None:
    placed = placed_by([broker(at) for at in range(4)], 12, 2, 0)
    followers = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert followers == {1: 1, 2: 1, 3: 1}


@given(racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9), data=st.data())
def test_replicas_are_in_as_many_racks_as_there_are(racks: list[str], data: st.DataObject) -> None:
    there = [broker(at, rack) for at, rack in enumerate(racks)]
    replication_factor = data.draw(st.integers(1, len(racks)))
    placed = placed_by(there, 3 * len(racks), replication_factor, data.draw(st.integers(0, 100)))
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert len({racks[replica] for replica in replicas}) == min(replication_factor, len(set(racks)))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}


def test_followers_in_racks_of_equal_size_are_spread_evenly() -> None:
    there = [broker(at, "abc"[at % 3]) for at in range(6)]
    held = Counter(replica for replicas in placed_by(there, 60, 3, 0) for replica in replicas)
    assert set(held.values()) == {30}


def test_a_rack_counts_only_where_every_broker_has_one() -> None:
    there = [broker(0, "a"), broker(1, "a"), broker(2)]
    assert placed_by(there, 6, 2, 0) == placed_by([broker(at) for at in range(3)], 6, 2, 0)


def test_only_brokers_that_are_alive_are_given_partitions() -> None:
    there = [broker(1), broker(2, is_fenced=True), broker(3)]
    assert {replica for replicas in placed_by(there, 9, 2, 0) for replica in replicas} == {1, 3}
    with pytest.raises(
        Refused, match=r"3 time\(s\): 3 broker\(s\) are registered, but only 2 of them alive"
    ) as refusal:
        placed_by(there, 1, 3, 0)
    assert refusal.value.code is ErrorCode.invalid_replication_factor


@pytest.mark.parametrize("name", ["a", "A-b_c.1", "x" * 249, "__mine", "..."])
def test_names_that_may_be(name: str) -> None:
    check_name(name)


@given(
    hosts=st.integers(3, 5),
    processes=st.integers(1, 4),
    dark=st.sets(st.integers(0, 4)),
    first=st.integers(0, 100),
)
def test_no_host_has_two_replicas_even_while_some_hosts_are_down(
    hosts: int, processes: int, dark: set[int], first: int
) -> None:
    there = [
        broker(host * processes + at, f"host-{host}", is_fenced=host in dark)
        for host in range(hosts)
        for at in range(processes)
    ]
    if sum(one.is_alive for one in there) < 3:
        return
    for replicas in placed_by(there, 20, 3, first):
        assert len({replica // processes for replica in replicas}) == 3
