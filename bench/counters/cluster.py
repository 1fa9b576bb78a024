"""A simulated cluster without faults and with constant delays, so that equal requests cost the same."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import ACKS_ALL
from cordwood.chaos.sim.admin import prepare
from cordwood.chaos.sim.host import BEGAN_MS, KAFKA_PORT, host_name
from cordwood.chaos.sim.kafka import Address, SimulatedClient, duration, message, part
from cordwood.chaos.sim.loop import Process
from cordwood.chaos.sim.plan import TOPIC, Plan
from cordwood.chaos.sim.world import World
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.replication.partition import Partition
from cordwood.storage.records import Record, encode

PARTITIONS = 6
LATENCY_S, DISK_S = 5e-6, 10e-6
SETTLED_S = 3.0
TIMEOUT_S = 30.0

QUIET: dict[str, object] = {
    "controller_quorum_election_timeout_ms": 20_000,
    "broker_heartbeat_interval_ms": 2_000,
    "broker_session_timeout_ms": 20_000,
}
"""Periodic work would fall into some requests and not into others; an idle second measures only that."""


class CountedCluster:
    """One broker, or several that all have a replica of every partition. Made on a SimulatedLoop.

    Without `is_quiet` the brokers' timers have their defaults.
    """

    def __init__(self, brokers: int, *, is_quiet: bool = True, **settings: object) -> None:
        self.brokers = brokers
        self.world = World(
            Plan(
                seed=1,
                seconds=0.0,
                brokers=brokers,
                voters=brokers if brokers > 1 else 0,
                partitions=PARTITIONS,
                latency_s=(LATENCY_S, LATENCY_S),
                disk_s=(DISK_S, DISK_S),
                split_share=0.0,
                clock_rates=(1.0,) * brokers,
                settings={**(QUIET if is_quiet else {}), **settings},
                producers=(),
                consumers=0,
                members=0,
                faults=(),
            )
        )

    async def begin(self) -> "CountedCluster":
        """Start the brokers, create the topic, and wait until every replica is in sync. Raises TimeoutError."""
        for host in self.world.hosts.values():
            host.start()
        await self.by(prepare(self.client("admin"), PARTITIONS, self.brokers, self.brokers // 2 + 1), "admin")
        async with asyncio.timeout(TIMEOUT_S):
            while not self._has_led_partitions() or not self.world.is_redundant():
                await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLED_S)
        return self

    def client(self, name: str) -> SimulatedClient:
        """Return a client with connections of its own."""
        bootstrap = [(host_name(broker_id), KAFKA_PORT) for broker_id in self.world.hosts]
        return SimulatedClient(name, TOPIC, bootstrap, random.Random(name))

    async def by(self, work: Any, name: str) -> Any:
        """Run the work as a client's process, on a host of its own."""
        return await self.world.loop.create_task(work, context=Process(name).context())

    def leader(self, partition: int) -> Address:
        return host_name(self.world.leader(partition)), KAFKA_PORT

    def partition(self, index: int) -> Partition:
        """Return the leader's replica."""
        watched = self.world.hosts[self.world.leader(index)].watched
        assert watched is not None, "its broker runs"
        found = watched.replicas.get(TOPIC, index)
        assert found is not None, "it leads the partition"
        return found

    def check(self) -> None:
        """Check that nothing failed: a failed request would be cheap. Raises AssertionError."""
        assert not self.world.violations, self.world.violations
        assert not self.world.events, self.world.events

    def _has_led_partitions(self) -> bool:
        return all(self.world.leader(partition) in self.world.hosts for partition in range(PARTITIONS))


def batch(value_bytes: int) -> bytes:
    """Return a batch of one record with a value of `value_bytes`."""
    return encode([Record(0, BEGAN_MS, None, b"v" * value_bytes)])


def produce(batches: Sequence[tuple[int, bytes]]) -> Any:
    """Return a Produce with acks=all and one batch for each partition in `batches`."""
    data = tuple(part(ApiKey.PRODUCE, "PartitionProduceData", index=at, records=records) for at, records in batches)
    topic = part(ApiKey.PRODUCE, "TopicProduceData", name=TOPIC, partition_data=data)
    return message(
        ApiKey.PRODUCE, transactional_id=None, acks=ACKS_ALL, timeout=duration(TIMEOUT_S), topic_data=(topic,)
    )


def fetch(partition: int, offset: int, bytes_max: int, wait_s: float) -> Any:
    """Return a Fetch outside any session that waits up to `wait_s` for one byte."""
    wanted = part(
        ApiKey.FETCH,
        "FetchPartition",
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        partition_max_bytes=bytes_max,
    )
    topic = part(ApiKey.FETCH, "FetchTopic", topic=TOPIC, partitions=(wanted,))
    return message(
        ApiKey.FETCH,
        max_wait=duration(wait_s),
        min_bytes=1,
        max_bytes=bytes_max,
        topics=(topic,),
        forgotten_topics_data=(),
        rack_id="",
    )


def check_produced(answer: Any) -> None:
    """Check that every batch was accepted. Raises AssertionError."""
    for topic in answer.responses:
        for partition in topic.partition_responses:
            assert partition.error_code is ErrorCode.none, partition


def fetched_bytes(answer: Any) -> int:
    """Return the bytes of batches over all partitions. Raises AssertionError where a partition has an error."""
    size = 0
    for topic in answer.responses:
        for partition in topic.partitions:
            assert partition.error_code is ErrorCode.none, partition
            size += len(partition.records or b"")
    return size
