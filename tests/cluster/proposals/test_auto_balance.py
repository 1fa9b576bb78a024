"""auto.balance=all: nothing moves before the brokers are settled; the replicas of lost brokers come first."""

from uuid import UUID

from cordwood.cluster.metadata.commands import BrokerId, ReassignPartition
from cordwood.cluster.metadata.image import BrokerImage, Image, PartitionImage, TopicImage
from cordwood.cluster.proposals.auto_balance import AutoBalance, mode_of, next_moves
from cordwood.cluster.proposals.cluster_load import load_of, room_in
from cordwood.storage.steps import at_once

TOPIC = UUID(int=1)
GRACE_S = 60.0


def image(*replicas: tuple[int, ...], alive: tuple[int, ...] = (1, 2, 3), adding: tuple[int, ...] = ()) -> Image:
    brokers = {
        BrokerId(each): BrokerImage(BrokerId(each), UUID(int=each), each, (), is_fenced=each not in alive)
        for each in (1, 2, 3, 4)
    }
    added = tuple(map(BrokerId, adding))
    partitions = tuple(
        PartitionImage(
            tuple(map(BrokerId, each)),
            tuple(map(BrokerId, each)),
            BrokerId(each[0]),
            adding=added,
        )
        for each in replicas
    )
    topic = TopicImage(TOPIC, "t", partitions)
    return Image(brokers=brokers, topics_by_name={"t": topic}, topics_by_id={TOPIC: topic})


def moves(of: Image, size: int = 1 << 20) -> list[ReassignPartition]:
    count = len(of.topics_by_name["t"].partitions)
    sizes = {("t", index): size for index in range(count)}
    return at_once(next_moves(of, at_once(load_of(of, sizes, {}))))


def test_nothing_is_due_within_the_grace_period() -> None:
    balance, whole_cluster = AutoBalance(GRACE_S), image((1, 2), alive=(1, 2, 3, 4))
    assert not balance.is_due(whole_cluster, 0)
    assert not balance.is_due(whole_cluster, GRACE_S - 1)
    assert balance.is_due(whole_cluster, GRACE_S)


def test_a_lost_broker_begins_the_grace_period_again() -> None:
    balance = AutoBalance(GRACE_S)
    assert not balance.is_due(image((1, 2), alive=(1, 2, 3, 4)), 0)
    assert not balance.is_due(image((1, 2)), GRACE_S)
    assert not balance.is_due(image((1, 2)), 2 * GRACE_S - 1)
    assert balance.is_due(image((1, 2)), 2 * GRACE_S)


def test_a_new_controller_begins_the_grace_period_again() -> None:
    balance = AutoBalance(GRACE_S)
    assert not balance.is_due(image((1, 2)), 0)
    balance.reset()
    assert not balance.is_due(image((1, 2)), GRACE_S)


def test_nothing_is_due_while_replicas_are_moved() -> None:
    balance, moving = AutoBalance(GRACE_S), image((1, 2, 3), adding=(3,))
    balance.is_due(moving, 0)
    assert not balance.is_due(moving, GRACE_S)


def test_the_replicas_of_a_lost_broker_come_first() -> None:
    """Broker 4 is down. Broker 1 has too much besides: that waits until the copies are whole again."""
    found = moves(image((1, 4), (1, 2), (1, 2), (1, 2), (1, 2), (1, 2)))
    assert [move for move in found if 4 in (move.replicas or ())] == []
    assert [move.partition for move in found if 3 in (move.replicas or ())] == [0]


def test_bytes_are_evened_out_when_all_brokers_are_there() -> None:
    found = moves(image(*[(1, 2)] * 8, alive=(1, 2, 3, 4)))
    assert any(set(move.replicas or ()) & {3, 4} for move in found)
    assert moves(image(*[(1, 2), (2, 3), (3, 4), (4, 1)] * 4, alive=(1, 2, 3, 4))) == []


def test_a_config_of_this_broker_precedes_that_of_all() -> None:
    assert mode_of(Image(), "leaders", {}) == "leaders"
    of_all = Image(broker_configs={"": {"auto.balance": "all"}})
    assert mode_of(of_all, "leaders", {}) == "all"
    assert mode_of(of_all, "leaders", {"auto.balance": "off"}) == "off"


def test_a_plan_leaves_a_part_of_each_disk_free() -> None:
    assert room_in(100, 1000) == 50
    assert room_in(10, 1000) == 0
