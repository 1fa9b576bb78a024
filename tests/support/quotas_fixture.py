"""A simulated broker with client quotas, and clients that do as much as they may."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.bench.counters.cluster import TIMEOUT_S, CountedCluster, batch, fetched_bytes, produce
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.loop import run
from cordwood.cluster.kafka.api_keys import ApiKey

WAIT_S = 600.0
Story = Callable[["QuotasFixture"], Awaitable[None]]


class QuotasFixture:
    """One broker. Every client is ANONYMOUS, and its name is its client id."""

    def __init__(self, cluster: CountedCluster) -> None:
        self.cluster = cluster
        self.leader = cluster.leader(0)
        self.admin = cluster.client("operator")

    @property
    def now(self) -> float:
        return self.cluster.world.now_s

    def client(self, name: str) -> SimulatedClient:
        return self.cluster.client(name)

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
        request, done, end = produce([(0, batch(size))]), 0, self.now + seconds
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


def tell(story: Story, **settings: object) -> None:
    """Run a scenario in virtual time."""

    async def told() -> None:
        cluster = await CountedCluster(1, **settings).begin()
        await cluster.by(story(QuotasFixture(cluster)), "client")
        cluster.check()

    run(told())


async def together(*works: Awaitable[int]) -> int:
    return sum(await asyncio.gather(*works))
