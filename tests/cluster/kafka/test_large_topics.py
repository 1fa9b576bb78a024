"""A large topic is created, grown and deleted in small steps of each broker's event loop."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from loop_steps import LongestStep

from cordwood.bench.counters.cluster import CountedCluster
from cordwood.chaos.sim.kafka import duration, message, part
from cordwood.chaos.sim.loop import run
from cordwood.cluster.kafka.api_keys import ApiKey

PARTITIONS = 1500
CALLS_MAX = 15_000
"""Of one step: less than 5 ms. What grows with 3,000 partitions has at most 5 calls for each."""
TOPIC = "large"


def creation(partitions: int, replicas: int) -> Any:
    api = ApiKey.CREATE_TOPICS
    counts = {"num_partitions": partitions, "replication_factor": replicas}
    topic = part(api, "CreatableTopic", name=TOPIC, **counts, assignments=(), configs=())
    return message(api, topics=(topic,), timeout=duration(30), validate_only=False)


def growth(partitions: int) -> Any:
    api = ApiKey.CREATE_PARTITIONS
    topic = part(api, "CreatePartitionsTopic", name=TOPIC, count=partitions, assignments=None)
    return message(api, topics=(topic,), timeout=duration(30), validate_only=False)


def deletion() -> Any:
    api = ApiKey.DELETE_TOPICS
    topic = part(api, "DeleteTopicState", name=TOPIC, topic_id=None)
    return message(api, topics=(topic,), timeout=duration(30))


async def ask(cluster: CountedCluster, request: Any) -> ErrorCode:
    answer = await cluster.by(cluster.client("admin").ask(cluster.leader(0), request, 30), "admin")
    (rows,) = (getattr(answer, name) for name in ("topics", "results", "responses") if hasattr(answer, name))
    return ErrorCode(rows[0].error_code)


def is_followed(cluster: CountedCluster, partitions: int) -> bool:
    """Whether every broker holds its replica of each partition, and each leader knows where its followers are."""
    for host in cluster.world.hosts.values():
        if host.watched is None:
            return False
        replicas = [replica for replica in host.watched.replicas if replica.topic == TOPIC]
        roles = [replica.leading for replica in replicas if replica.leading is not None]
        if len(replicas) < partitions or any(-1 in follower for role in roles for follower in role.followers()):
            return False
    return True


async def until_followed(cluster: CountedCluster, partitions: int) -> None:
    async with asyncio.timeout(60):
        while not is_followed(cluster, partitions):
            await asyncio.sleep(0.1)


async def until_fenced(cluster: CountedCluster, victim: int) -> None:
    """Wait until each other broker has taken its roles without this one."""
    async with asyncio.timeout(60):
        while any(
            replica.leader_id == victim or (replica.leading is not None and victim in replica.leading.view.isr)
            for host in cluster.world.hosts.values()
            if host.watched is not None
            for replica in host.watched.replicas
        ):
            await asyncio.sleep(1)


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_topic_of_thousands_of_partitions_is_created_grown_and_deleted_in_small_steps(brokers: int) -> None:
    async def story() -> None:
        cluster = await CountedCluster(brokers).begin()
        with LongestStep() as longest:
            assert await ask(cluster, creation(PARTITIONS, brokers)) is ErrorCode.none
            await until_followed(cluster, PARTITIONS)
        assert longest.calls < CALLS_MAX, "created"
        with LongestStep() as longest:
            assert await ask(cluster, growth(2 * PARTITIONS)) is ErrorCode.none
            await until_followed(cluster, 2 * PARTITIONS)
        assert longest.calls < CALLS_MAX, "grown"
        cluster.check()
        if brokers > 1:
            victim = next(broker for broker in cluster.world.hosts if broker != cluster.world.controller())
            with LongestStep() as longest:
                cluster.world.hosts[victim].kill()
                await until_fenced(cluster, victim)
            assert longest.calls < CALLS_MAX, "fenced"
            cluster.world.start(victim)
            await until_followed(cluster, 2 * PARTITIONS)
        with LongestStep() as longest:
            assert await ask(cluster, deletion()) is ErrorCode.none
            await asyncio.sleep(2)
        assert longest.calls < CALLS_MAX, "deleted"
        assert await ask(cluster, creation(1, brokers)) is ErrorCode.none
        await until_followed(cluster, 1)

    run(story())
