"""One broker of a simulated world with a topic of many partitions, a producer and a consumer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from cordwood.bench.counters.cluster import TIMEOUT_S, CountedCluster, batch
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.loop import run
from cordwood.cluster.kafka.api_keys import ApiKey

MANY = "many"
PARTITIONS = 300
BATCH = batch(100)
WAIT_S = 10.0


def produce(*partitions: int) -> Any:
    """Return a Produce request with a batch for each of these partitions."""
    data = tuple(part(ApiKey.PRODUCE, "PartitionProduceData", index=at, records=BATCH) for at in partitions)
    topic = part(ApiKey.PRODUCE, "TopicProduceData", name=MANY, partition_data=data)
    return message(ApiKey.PRODUCE, transactional_id=None, acks=-1, timeout=duration(TIMEOUT_S), topic_data=(topic,))


def fetch(partitions: Iterable[int], bytes_min: int, offset: int = 0) -> Any:
    """Return a Fetch request without a session."""
    wanted = tuple(
        part(
            ApiKey.FETCH,
            "FetchPartition",
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
        )
        for index in partitions
    )
    topic = part(ApiKey.FETCH, "FetchTopic", topic=MANY, partitions=wanted)
    return message(
        ApiKey.FETCH,
        max_wait=duration(WAIT_S),
        min_bytes=bytes_min,
        max_bytes=10 << 20,
        topics=(topic,),
        forgotten_topics_data=(),
        rack_id="",
    )


async def create(cluster: CountedCluster, client: SimulatedClient) -> None:
    topic = part(
        ApiKey.CREATE_TOPICS,
        "CreatableTopic",
        name=MANY,
        num_partitions=PARTITIONS,
        replication_factor=1,
        assignments=(),
        configs=(),
    )
    await client.ask(cluster.leader(0), message(ApiKey.CREATE_TOPICS, topics=(topic,), timeout=duration(TIMEOUT_S)))
    await asyncio.sleep(1.0)


Story = Callable[[CountedCluster, SimulatedClient, SimulatedClient], Awaitable[None]]


def tell(story: Story) -> None:
    """Run a scenario."""

    async def reported() -> None:
        cluster = await CountedCluster(1).begin()
        producing, consuming = cluster.client("producer"), cluster.client("consumer")
        await cluster.by(create(cluster, producing), "producer")
        await cluster.by(story(cluster, producing, consuming), "client")
        cluster.check()

    run(reported())
