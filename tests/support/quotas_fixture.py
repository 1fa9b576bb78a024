"""A simulated broker with client quotas, and clients that do as much as they may."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.host import BEGAN_MS, KAFKA_PORT, host_name
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.loop import Process, run
from cordwood.chaos.sim.plan import TOPIC, Plan
from cordwood.chaos.sim.world import World
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.records import Record, encode

WAIT_S = 600.0
TIMEOUT_S = 30.0
ACKS_ALL = -1
Story = Callable[["QuotasFixture"], Awaitable[None]]


class QuotasFixture:
    """One broker. Every client is ANONYMOUS, and its name is its client id."""

    def __init__(self, world: World) -> None:
        self._world = world
        (broker_id,) = world.hosts
        self.leader = (host_name(broker_id), KAFKA_PORT)
        self.admin = self.client("operator")

    @property
    def now(self) -> float:
        return self._world.now_s

    def client(self, name: str) -> SimulatedClient:
        """Return a client with connections of its own."""
        return SimulatedClient(name, TOPIC, [self.leader], random.Random(name))

    async def ask(self, client: SimulatedClient, request: Any) -> tuple[Any, float]:
        """Return the response, and the seconds until it arrived."""
        began = self.now
        response = await client.ask(self.leader, request, WAIT_S)
        return response, self.now - began

    async def set(self, key: str, value: float | None, **entity: str | None) -> ErrorCode:
        """Set a limit of an entity: of `user`, `client_id` or `ip`; None for the default."""
        parts = tuple(
            part(ApiKey.ALTER_CLIENT_QUOTAS, "EntityData", 1, entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in entity.items()
        )
        change = part(ApiKey.ALTER_CLIENT_QUOTAS, "OpData", 1, key=key, value=value or 0.0, remove=value is None)
        entry = part(ApiKey.ALTER_CLIENT_QUOTAS, "EntryData", 1, entity=parts, ops=(change,))
        request = message(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=(entry,), validate_only=False)
        response = await self.admin.ask(self.leader, request)
        code: ErrorCode = response.entries[0].error_code
        return code

    async def produce_for(self, client: SimulatedClient, seconds: float, size: int) -> int:
        """Produce batches one after the other. Return the acknowledged bytes."""
        request, done, end = produce(batch(size)), 0, self.now + seconds
        while self.now < end:
            await client.ask(self.leader, request, WAIT_S)
            if self.now < end:
                done += size
        return done

    async def fetch_for(self, client: SimulatedClient, request: Any, seconds: float) -> int:
        """Send the same fetch again and again. Return the fetched bytes."""
        done, end = 0, self.now + seconds
        while self.now < end:
            response = await client.ask(self.leader, request, WAIT_S)
            size = fetched_bytes(response)
            assert not (size and throttle_ms(response)), "a throttled fetch has no data"
            if self.now < end:
                done += size
        return done


def throttle_ms(response: Any) -> int:
    return int(response.throttle_time.total_seconds() * 1000)


def create(name: str, partitions: int, version: int = 7) -> Any:
    topic = part(
        ApiKey.CREATE_TOPICS,
        "CreatableTopic",
        version,
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=(),
    )
    return message(ApiKey.CREATE_TOPICS, version, topics=(topic,), timeout=duration(TIMEOUT_S), validate_only=False)


def add_partitions(name: str, count: int, version: int = 3) -> Any:
    """Return a request for `count` partitions altogether."""
    topic = part(ApiKey.CREATE_PARTITIONS, "CreatePartitionsTopic", version, name=name, count=count, assignments=None)
    return message(ApiKey.CREATE_PARTITIONS, version, topics=(topic,), timeout=duration(TIMEOUT_S), validate_only=False)


def delete(name: str, version: int = 6) -> Any:
    if version < 6:
        return message(ApiKey.DELETE_TOPICS, version, topic_names=(name,), timeout=duration(TIMEOUT_S))
    topic = part(ApiKey.DELETE_TOPICS, "DeleteTopicState", version, name=name, topic_id=None)
    return message(ApiKey.DELETE_TOPICS, version, topics=(topic,), timeout=duration(TIMEOUT_S))


def batch(value_bytes: int) -> bytes:
    """Return a batch of one record with a value of `value_bytes`."""
    return encode([Record(0, BEGAN_MS, None, b"v" * value_bytes)])


def produce(records: bytes, acks: int = ACKS_ALL) -> Any:
    data = (part(ApiKey.PRODUCE, "PartitionProduceData", index=0, records=records),)
    topic = part(ApiKey.PRODUCE, "TopicProduceData", name=TOPIC, partition_data=data)
    return message(ApiKey.PRODUCE, transactional_id=None, acks=acks, timeout=duration(TIMEOUT_S), topic_data=(topic,))


def fetch(bytes_max: int) -> Any:
    """Return a Fetch of the first records, outside any session."""
    wanted = part(
        ApiKey.FETCH,
        "FetchPartition",
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        partition_max_bytes=bytes_max,
    )
    topic = part(ApiKey.FETCH, "FetchTopic", topic=TOPIC, partitions=(wanted,))
    return message(
        ApiKey.FETCH,
        max_wait=duration(1.0),
        min_bytes=1,
        max_bytes=bytes_max,
        topics=(topic,),
        forgotten_topics_data=(),
        rack_id="",
    )


def fetched_bytes(answer: Any) -> int:
    """Return the size of the records. Raises AssertionError for an error code."""
    found = [row for topic in answer.responses for row in topic.partitions]
    assert not any(row.error_code for row in found), answer
    return sum(len(row.records or b"") for row in found)


def tell(story: Story) -> None:
    """Run a scenario in virtual time."""
    run(_reported(story))


async def _reported(story: Story) -> None:
    plan = Plan(
        seed=1,
        seconds=0.0,
        brokers=1,
        voters=0,
        partitions=1,
        latency_s=(5e-6, 5e-6),
        disk_s=(1e-5, 1e-5),
        settings={},
        split_share=0.0,
        clock_rates=(1.0,),
        producers=(),
        consumers=0,
        members=0,
        faults=(),
    )
    world = World(plan)
    for host in world.hosts.values():
        host.start()
    admin = SimulatedClient("admin", TOPIC, [(host_name(one), KAFKA_PORT) for one in world.hosts], random.Random(1))
    await _by(world, prepare(admin, 1, 1, 1), "admin")
    async with asyncio.timeout(TIMEOUT_S):
        while world.leader(0) not in world.hosts:
            await asyncio.sleep(0.1)
    await _by(world, story(QuotasFixture(world)), "client")
    assert not world.violations, world.violations


async def _by(world: World, work: Any, name: str) -> None:
    """Run the work as a client's process, on a host of its own."""
    await world.loop.create_task(work, context=Process(name).context())


async def together(*works: Awaitable[int]) -> int:
    return sum(await asyncio.gather(*works))
