"""Replication throttle as the metadata image has it: throttled replicas, and the leaders' shares of a rate."""

from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

import pytest
from virtual_time import run

from cordwood.cluster.broker.throttle_rates import ThrottleRates, charges
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import ALL_BROKERS, Image, PartitionImage, TopicImage
from cordwood.replication.throttle import Charge, ReplicationThrottle
from cordwood.replication.token_bucket import UNLIMITED

BOTH = Charge.LEADER | Charge.FOLLOWER
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def moved(leader: int, adding: tuple[int, ...], isr: tuple[int, ...] = ()) -> PartitionImage:
    """Return a partition that is moved from its leader to other brokers."""
    members = isr or (leader,)
    replicas = ids(*adding, leader)
    return PartitionImage(replicas, ids(*members), BrokerId(leader), adding=ids(*adding), removing=ids(leader))


def topic_of(*partitions: PartitionImage, **configs: str) -> TopicImage:
    return TopicImage(UUID(int=1), "t", partitions, MappingProxyType(configs))


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, {2: BOTH, 3: BOTH}),
        ({LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}, {2: BOTH, 3: BOTH}),
        ({LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:3,0:4"}, {2: Charge.LEADER, 3: BOTH}),
        ({LEADER_REPLICAS: "0:2,1:1", FOLLOWER_REPLICAS: "1:2"}, {2: Charge.NONE, 3: Charge.NONE}),
        ({LEADER_REPLICAS: ""}, {2: Charge.FOLLOWER, 3: Charge.FOLLOWER}),
        ({LEADER_REPLICAS: "of another version"}, {2: BOTH, 3: BOTH}),
    ],
)
def test_replicas_that_are_added_are_charged_unless_a_list_exempts_them(
    configs: dict[str, str], expected: dict[int, Charge]
) -> None:
    partition = moved(1, (2, 3))
    assert charges(topic_of(partition, **configs), 0, partition) == expected


def test_a_replica_that_no_reassignment_adds_is_charged_to_nothing() -> None:
    partition = PartitionImage(ids(1, 2), ids(1), BrokerId(1))
    assert charges(topic_of(partition, **{LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}), 0, partition) == {}


class RecordingThrottle(ReplicationThrottle):
    """A throttle that shows its rates."""

    leader = 0.0
    shares: dict[int, float]

    def set_rates(self, leader: float, followers: object, _now: float) -> None:
        assert isinstance(followers, dict)
        self.leader, self.shares = leader, followers


def test_the_leaders_of_a_follower_share_its_rate_equally() -> None:
    async def scenario() -> None:
        throttle = RecordingThrottle()
        rates = ThrottleRates(Settings(node_id=1), throttle)

        def follow(*partitions: PartitionImage, configs: dict[str, dict[str, str]]) -> None:
            topic = topic_of(*partitions)
            image = Image(topics_by_name={topic.name: topic}, topics_by_id={topic.id: topic}, broker_configs=configs)
            rates.follow(Image(), image)

        limits = {
            ALL_BROKERS: {"follower.replication.throttled.rate": "600"},
            "3": {"follower.replication.throttled.rate": "90"},
            "1": {"leader.replication.throttled.rate": "1000"},
        }
        to_3, to_4 = moved(1, (3,)), moved(1, (4,))
        follow(to_3, to_4, moved(2, (3,)), moved(5, (3,)), configs=limits)
        assert (throttle.leader, throttle.shares) == (1000, {3: 30, 4: 600})
        # The second partition has arrived in sync; another partition's move has ended; one has lost its leader.
        in_sync = replace(to_3, isr=ids(3, 1))
        follow(in_sync, to_3, PartitionImage(ids(2), ids(2), BrokerId(2)), moved(-1, (3,)), configs=limits)
        assert throttle.shares == {3: 90}
        follow(in_sync, to_3, configs={})
        assert (throttle.leader, throttle.shares) == (UNLIMITED, {3: UNLIMITED})
        follow(configs={})
        assert throttle.shares == {}

    run(scenario())
