"""Counted scenarios: a few requests, each alone, warm, and many times over."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from cordwood.bench.counters.call_counter import CallCounter
from cordwood.bench.counters.cluster import (
    PARTITIONS,
    CountedCluster,
    batch,
    check_produced,
    fetch,
    fetched_bytes,
    produce,
)
from cordwood.bench.counters.transactions import TransactionRun
from cordwood.chaos.sim.kafka import SimulatedClient
from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.undisturbed import undisturbed

Counts = dict[str, float]
"""Per request, by the counter's name."""
Step = Callable[[], Awaitable[None]]
"""One request, or the work that is counted as one."""
Prepare = Callable[[CountedCluster, SimulatedClient], Awaitable[Step]]

SMALL_BYTES = 100
MEGABYTE = 1 << 20
WARM_UP = 50
CONNECTIONS = 16
POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class CounterScenario:
    """`prepare` makes the step, which is counted `times` times after `warm_up` uncounted ones."""

    name: str
    brokers: int
    prepare: Prepare
    times: int = 200
    warm_up: int = WARM_UP
    is_quiet: bool = True


async def _small_produce(cluster: CountedCluster, client: SimulatedClient) -> Step:
    request, leader = produce([(0, batch(SMALL_BYTES))]), cluster.leader(0)

    async def step() -> None:
        check_produced(await client.ask(leader, request))

    return step


async def _large_produce(cluster: CountedCluster, client: SimulatedClient) -> Step:
    """Produce a megabyte over all partitions."""
    records = batch(MEGABYTE // PARTITIONS)
    request, leader = produce([(index, records) for index in range(PARTITIONS)]), cluster.leader(0)

    async def step() -> None:
        check_produced(await client.ask(leader, request))

    return step


async def _large_fetch(cluster: CountedCluster, client: SimulatedClient) -> Step:
    """Fetch a megabyte that is in memory, in batches of 64 KiB."""
    records, leader = batch(64 << 10), cluster.leader(0)
    for _ in range(18):
        check_produced(await client.ask(leader, produce([(0, records)])))
    request = fetch(0, 0, MEGABYTE, 0.0)

    async def step() -> None:
        size = fetched_bytes(await client.ask(leader, request))
        assert size > MEGABYTE * 0.9, f"{size} bytes fetched"

    return step


async def _woken_poll(cluster: CountedCluster, client: SimulatedClient) -> Step:
    """Long-poll an empty fetch until the small produce on another connection completes it."""
    producing, leader = cluster.client("another"), cluster.leader(0)
    sent = produce([(0, batch(SMALL_BYTES))])
    check_produced(await producing.ask(leader, sent))

    async def step() -> None:
        end = cluster.partition(0).high_watermark
        polling = asyncio.ensure_future(client.ask(leader, fetch(0, end, MEGABYTE, POLL_S), 2 * POLL_S))
        await asyncio.sleep(0.001)
        assert not polling.done(), "there was something to fetch already"
        check_produced(await producing.ask(leader, sent))
        assert fetched_bytes(await polling) > SMALL_BYTES

    return step


async def _sixteen_at_once(cluster: CountedCluster, _client: SimulatedClient) -> Step:
    """Produce one small batch on each of 16 connections in one event-loop iteration: one group commit, one fsync."""
    clients = [cluster.client(f"client {number}") for number in range(CONNECTIONS)]
    request, leader = produce([(0, batch(SMALL_BYTES))]), cluster.leader(0)

    async def step() -> None:
        for answer in await asyncio.gather(*(client.ask(leader, request) for client in clients)):
            check_produced(answer)

    return step


async def _transaction(cluster: CountedCluster, client: SimulatedClient, *, is_v2: bool) -> Step:
    """Commit a transaction of one small batch, which waits for the markers of the one before."""
    producer = TransactionRun(client, cluster.leader(0), is_v2=is_v2)
    await producer.begin()

    async def step() -> None:
        await producer.commit(SMALL_BYTES)

    return step


async def _idle_second(cluster: CountedCluster, client: SimulatedClient) -> Step:
    """Keep one connection idle after a produce."""
    check_produced(await client.ask(cluster.leader(0), produce([(0, batch(SMALL_BYTES))])))

    async def step() -> None:
        await asyncio.sleep(1.0)

    return step


SCENARIOS = (
    CounterScenario("a small produce, 1 broker", 1, _small_produce),
    CounterScenario("a small produce, 3 brokers", 3, _small_produce, times=100),
    CounterScenario("a produce of 1 MB to 6 partitions", 1, _large_produce, times=50, warm_up=10),
    CounterScenario("a fetch of 1 MB", 1, _large_fetch, times=50, warm_up=10),
    CounterScenario("a long poll woken by a small produce", 1, _woken_poll, times=100),
    CounterScenario("16 small produces in one turn", 1, _sixteen_at_once, times=20, warm_up=10),
    CounterScenario("an idle second, 1 broker", 1, _idle_second, times=20, warm_up=5, is_quiet=False),
    CounterScenario("an idle second, 3 brokers", 3, _idle_second, times=20, warm_up=5, is_quiet=False),
    CounterScenario("a transaction, version 1", 1, partial(_transaction, is_v2=False), times=40, warm_up=20),
    CounterScenario("a transaction, version 2", 1, partial(_transaction, is_v2=True), times=40, warm_up=20),
)


def count(scenario: CounterScenario) -> Counts:
    """Return the cost of one step over all brokers: calls and system calls, then, in a second world, memory."""
    with undisturbed():
        return {**_counted(scenario, CallCounter()), **_counted(scenario, CallCounter(with_memory=True))}


def _counted(scenario: CounterScenario, counting: CallCounter) -> Counts:
    async def story() -> None:
        cluster = await CountedCluster(scenario.brokers, is_quiet=scenario.is_quiet).begin()
        await cluster.by(_repeat(cluster, scenario, counting), "client")
        cluster.check()

    run(story())
    return {name: number / scenario.times for name, number in counting.counts.items()}


async def _repeat(cluster: CountedCluster, scenario: CounterScenario, counting: CallCounter) -> None:
    step = await scenario.prepare(cluster, cluster.client("client"))
    for _ in range(scenario.warm_up):
        await step()
    gc.collect()
    with counting:
        for _ in range(scenario.times):
            await step()
