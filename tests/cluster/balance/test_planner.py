"""Plans of balances and drains: hard goals always, evenness where it is possible, and few moves."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.cluster.balance.layout import ReplicaLayout
from cordwood.cluster.balance.leaders import Leaders
from cordwood.cluster.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from cordwood.cluster.balance.plan import BalancePlan
from cordwood.cluster.balance.planner import balance, drain
from cordwood.storage.steps import at_once

MIB = 1 << 20
STEPS_MAX = 200_000
"""Steps in which 10,000 partitions are planned. A step looks at a few replicas, so the number stands for the time."""


@st.composite
def clusters(draw: st.DrawFn, *, racks: bool = True) -> ClusterLoad:
    """Draw a cluster whose partitions lie anywhere, but have no replica twice on a broker."""
    rng = draw(st.randoms(use_true_random=False))
    count = draw(st.integers(1, 7))
    rack_count = draw(st.integers(0, count)) if racks else 0
    brokers = tuple(
        BrokerLoad(
            broker,
            rack=f"rack-{broker % rack_count}" if rack_count else None,
            is_alive=rng.random() > 0.1,
            is_cordoned=rng.random() < 0.1,
            room_bytes=rng.choice([None, 0, 20 * MIB, 10**12]) if racks else None,
        )
        for broker in range(1, count + 1)
    )
    factor = draw(st.integers(1, count))
    partitions = tuple(
        _partition(number, rng.sample(range(1, count + 1), factor), rng) for number in range(draw(st.integers(0, 60)))
    )
    return ClusterLoad(brokers, partitions)


def _partition(number: int, replicas: list[int], rng: random.Random) -> PartitionLoad:
    size, written, read = rng.randrange(10 * MIB), rng.random() * MIB, rng.random() * MIB
    return PartitionLoad("t", number, tuple(replicas), replicas[0], size, written, read, is_moving=rng.random() < 0.05)


def _after(cluster: ClusterLoad, plan: BalancePlan) -> ClusterLoad:
    moved = {(move.topic, move.index): move.after for move in plan.moves}
    return ClusterLoad(
        cluster.brokers,
        tuple(
            replace(each, replicas=moved.get((each.topic, each.index), each.replicas)) for each in cluster.partitions
        ),
    )


def _racks_used(cluster: ClusterLoad, replicas: tuple[int, ...]) -> int:
    racks = {broker.broker_id: broker.rack or str(broker.broker_id) for broker in cluster.brokers}
    return len({racks[broker] for broker in replicas})


def _check_hard_goals(cluster: ClusterLoad, plan: BalancePlan, leaving: frozenset[int] = frozenset()) -> None:
    partitions = {(each.topic, each.index): each for each in cluster.partitions}
    brokers = {broker.broker_id: broker for broker in cluster.brokers}
    has_racks = all(broker.rack for broker in cluster.brokers if broker.is_alive)
    added = dict.fromkeys(brokers, 0)
    for move in plan.moves:
        partition = partitions[move.topic, move.index]
        assert not partition.is_moving
        assert move.before == partition.replicas != move.after
        assert len(set(move.after)) == len(move.after) == len(move.before)
        if has_racks and not leaving:
            assert _racks_used(cluster, move.after) >= _racks_used(cluster, move.before)
        for broker in move.adding:
            added[broker] += move.size_bytes
            assert brokers[broker].is_alive
            assert not brokers[broker].is_cordoned
            assert broker not in leaving
    for broker_id, size in added.items():
        room = brokers[broker_id].room_bytes
        assert room is None or size <= room


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_a_balance_breaks_no_hard_goal(cluster: ClusterLoad) -> None:
    _check_hard_goals(cluster, at_once(balance(cluster)))


def test_a_cordoned_broker_gives_leaders_and_gets_no_replica_for_them() -> None:
    brokers = tuple(BrokerLoad(broker, is_cordoned=broker == 5) for broker in range(1, 6))
    replicas = ((2, 3), (5, 2), (5, 4), (5, 4), (5, 2))
    partitions = tuple(PartitionLoad("t", number, each, each[0], MIB) for number, each in enumerate(replicas))
    plan = at_once(balance(ClusterLoad(brokers, partitions)))
    assert plan.moves
    assert all(5 not in move.adding for move in plan.moves)


def test_a_broker_that_is_down_gets_no_leader() -> None:
    brokers = tuple(BrokerLoad(broker, is_alive=broker != 1) for broker in (1, 2, 3))
    partitions = tuple(PartitionLoad("t", number, (2, 1, 3), 2, MIB) for number in range(12))
    plan = at_once(balance(ClusterLoad(brokers, partitions)))
    assert sorted(move.after[0] for move in plan.moves) == [3] * 6


def test_all_replicas_that_share_a_rack_are_moved() -> None:
    brokers = tuple(BrokerLoad(broker, rack) for broker, rack in enumerate("aaabc", 1))
    plan = at_once(balance(ClusterLoad(brokers, (PartitionLoad("t", 0, (1, 2, 3), 1, MIB),))))
    assert [sorted(move.adding) for move in plan.moves] == [[4, 5]]


@given(clusters(), st.sets(st.integers(1, 7), max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_drain_breaks_no_hard_goal(cluster: ClusterLoad, leaving: set[int]) -> None:
    _check_hard_goals(cluster, at_once(drain(cluster, leaving)), frozenset(leaving))


@given(clusters(racks=False), st.sets(st.integers(1, 7), max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_drain_leaves_nothing_or_says_what(cluster: ClusterLoad, leaving: set[int]) -> None:
    plan = at_once(drain(cluster, leaving))
    left = [each for each in _after(cluster, plan).partitions if leaving & set(each.replicas) and not each.is_moving]
    assert bool(left) == any("cannot be placed" in problem for problem in plan.problems)


@given(
    brokers=st.integers(2, 12), added=st.integers(0, 4), factor=st.integers(1, 3), rng=st.randoms(use_true_random=False)
)
@settings(max_examples=40, deadline=None)
def test_bytes_and_leaders_are_even_afterwards(brokers: int, added: int, factor: int, rng: random.Random) -> None:
    factor = min(factor, brokers)
    partitions = tuple(
        PartitionLoad("t", number, tuple(replicas), replicas[0], 10 * MIB + rng.randrange(10 * MIB))
        for number in range(40 * (brokers + added))
        for replicas in [rng.sample(range(brokers), factor)]
    )
    cluster = ClusterLoad(tuple(BrokerLoad(each) for each in range(brokers + added)), partitions)
    plan = at_once(balance(cluster))
    assert plan.after.size_bytes <= 0.10
    assert plan.after.leaders <= 0.10
    assert plan.is_even
    assert not at_once(balance(_after(cluster, plan))).moves, "a balanced cluster needs no move"


@given(st.integers(3, 6), st.integers(1, 3), st.integers(2, 3))
@settings(max_examples=30, deadline=None)
def test_replicas_move_only_to_new_brokers(brokers: int, added: int, factor: int) -> None:
    """Of an even cluster that grows, about the share of the new brokers is copied, and nothing between the old ones."""
    count = 20 * brokers * (brokers + added)
    partitions = tuple(
        PartitionLoad("t", number, tuple((number + step) % brokers for step in range(factor)), number % brokers, MIB)
        for number in range(count)
    )
    cluster = ClusterLoad(tuple(BrokerLoad(each) for each in range(brokers + added)), partitions)
    plan = at_once(balance(cluster))
    assert plan.copies <= count * factor * added / (brokers + added)
    assert all(broker >= brokers for move in plan.moves for broker in move.adding)


def test_an_even_cluster_needs_no_move() -> None:
    partitions = tuple(PartitionLoad("t", n, (n % 3, (n + 1) % 3), n % 3, MIB) for n in range(30))
    plan = at_once(balance(ClusterLoad(tuple(map(BrokerLoad, range(3))), partitions)))
    assert plan.is_empty
    assert plan.verdict() == "nothing to do: bytes and leaders are even"


def test_a_drain_that_cannot_place_a_partition_does_not_say_that_all_is_well() -> None:
    plan = at_once(drain(ClusterLoad((BrokerLoad(1),), (PartitionLoad("t", 0, (1,), 1, MIB),)), {1}))
    assert plan.is_empty
    assert len(plan.problems) == 1
    assert plan.verdict() == "no move is planned"


def test_leaders_move_along_chains() -> None:
    """Broker 0 shares no partition with broker 2: it gives one to broker 1, which gives one to broker 2."""
    replicas = [(0, 1)] * 4 + [(1, 2)] * 2
    partitions = tuple(PartitionLoad("t", n, each, each[0]) for n, each in enumerate(replicas))
    layout = ReplicaLayout(ClusterLoad(tuple(map(BrokerLoad, range(3))), partitions), {0, 1, 2}, frozenset())
    at_once(Leaders(layout, {0, 1, 2}).even_counts())
    assert sorted(leader for leader, _ in layout.replicas) == [0, 0, 1, 1, 2, 2]


def test_a_rack_never_gets_a_second_replica() -> None:
    """Racks of unequal size: the lone broker of a rack keeps a replica of each partition, however uneven that is."""
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    partitions = tuple(PartitionLoad("t", n, (n % 3, 3), n % 3, MIB) for n in range(30))
    cluster = ClusterLoad(tuple(BrokerLoad(each, rack) for each, rack in racks.items()), partitions)
    plan = at_once(balance(cluster))
    assert all(3 in each.replicas for each in _after(cluster, plan).partitions)
    assert "do not allow more" in plan.verdict()


def test_replicas_in_one_rack_are_spread() -> None:
    racks = {0: "a", 1: "a", 2: "b"}
    partitions = (PartitionLoad("t", 0, (0, 1), 0, MIB),)
    plan = at_once(balance(ClusterLoad(tuple(BrokerLoad(each, rack) for each, rack in racks.items()), partitions)))
    [move] = plan.moves
    assert move.adding == (2,)


def test_a_full_disk_gets_nothing() -> None:
    partitions = tuple(PartitionLoad("t", n, (0,), 0, MIB) for n in range(10))
    brokers = (BrokerLoad(0), BrokerLoad(1, room_bytes=2 * MIB), BrokerLoad(2, is_cordoned=True))
    plan = at_once(balance(ClusterLoad(brokers, partitions)))
    assert plan.copied_bytes == 2 * MIB


def test_leaders_share_the_traffic() -> None:
    partitions = tuple(
        PartitionLoad("t", n, (n % 2, 1 - n % 2), n % 2, 0, 0, 10.0 if n % 2 else 1.0) for n in range(40)
    )
    plan = at_once(balance(ClusterLoad(tuple(map(BrokerLoad, range(2))), partitions)))
    assert plan.after.bytes_out <= 0.10 < plan.before.bytes_out
    assert plan.after.leaders == 0
    assert plan.copies == 0


def test_the_expected_time_is_that_of_the_busiest_broker() -> None:
    partitions = tuple(PartitionLoad("t", n, (0,), 0, 100 * MIB) for n in range(3))
    plan = at_once(balance(ClusterLoad(tuple(map(BrokerLoad, range(3))), partitions)))
    assert plan.copied_bytes == 200 * MIB
    assert 20 < plan.expected_s(10 * MIB) < 21


def test_ten_thousand_partitions_take_few_steps() -> None:
    rng = random.Random(1)
    partitions = tuple(
        PartitionLoad("t", n, tuple((n + step) % 3 for step in range(3)), n % 3, rng.randrange(10 * MIB), rng.random())
        for n in range(10_000)
    )
    cluster = ClusterLoad(tuple(BrokerLoad(each, "aabbc"[each]) for each in range(5)), partitions)
    assert sum(1 for _ in balance(cluster)) < STEPS_MAX
