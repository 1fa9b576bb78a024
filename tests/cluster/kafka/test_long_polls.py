"""Long polls over many partitions: only changed partitions are examined, and a repeated partition counts once."""

import asyncio

import pytest
from loop_steps import LongestStep
from many_partitions import BATCH, PARTITIONS, WAIT_S, fetch, produce, tell

from cordwood.bench.counters.cluster import CountedCluster, check_produced, fetched_bytes
from cordwood.chaos.sim.kafka import SimulatedClient

CALLS_MAX = 2500
"""Calls in one step of the loop: a produce and a wake-up take a few hundred."""


def test_a_partition_that_is_named_thousands_of_times_is_watched_once() -> None:
    async def story(cluster: CountedCluster, producing: SimulatedClient, consuming: SimulatedClient) -> None:
        leader = cluster.leader(0)
        polling = asyncio.ensure_future(consuming.ask(leader, fetch([0] * 3000, 1 << 20), 2 * WAIT_S))
        await asyncio.sleep(0.1)
        with LongestStep() as longest:
            check_produced(await producing.ask(leader, produce(0)))
        assert longest.calls < CALLS_MAX
        answer = await polling
        assert [len(topic.partitions) for topic in answer.responses] == [1]
        assert fetched_bytes(answer) == len(BATCH)

    tell(story)


def test_of_many_partitions_only_the_one_that_moved_is_looked_at() -> None:
    async def story(cluster: CountedCluster, producing: SimulatedClient, consuming: SimulatedClient) -> None:
        leader = cluster.leader(0)
        polling = asyncio.ensure_future(consuming.ask(leader, fetch(range(PARTITIONS), 1 << 20), 2 * WAIT_S))
        await asyncio.sleep(0.1)
        with LongestStep() as longest:
            for partition in range(10):
                check_produced(await producing.ask(leader, produce(partition)))
        assert longest.calls < CALLS_MAX
        assert not polling.done()
        assert fetched_bytes(await polling) == 10 * len(BATCH), "all of it once the time is over"

    tell(story)


@pytest.mark.parametrize("partitions", [10, PARTITIONS])
@pytest.mark.parametrize("later", [(1, 7, 9), (1, 8, 9)])
def test_bytes_of_several_partitions_count_together(partitions: int, later: tuple[int, ...]) -> None:
    async def story(cluster: CountedCluster, producing: SimulatedClient, consuming: SimulatedClient) -> None:
        leader = cluster.leader(0)
        check_produced(await producing.ask(leader, produce(7)))
        began = cluster.world.now_s
        polling = asyncio.ensure_future(consuming.ask(leader, fetch(range(partitions), 4 * len(BATCH)), 2 * WAIT_S))
        for partition in later:
            await asyncio.sleep(0.1)
            assert not polling.done(), "there is not enough yet"
            check_produced(await producing.ask(leader, produce(partition)))
        assert fetched_bytes(await polling) == 4 * len(BATCH)
        assert cluster.world.now_s - began < WAIT_S / 2, "it did not wait for its time to be over"

    tell(story)


def test_a_poll_of_many_partitions_ends_with_its_time() -> None:
    async def story(cluster: CountedCluster, _producing: SimulatedClient, consuming: SimulatedClient) -> None:
        began = cluster.world.now_s
        answer = await consuming.ask(cluster.leader(0), fetch(range(PARTITIONS), 1), 2 * WAIT_S)
        assert fetched_bytes(answer) == 0
        assert WAIT_S <= cluster.world.now_s - began < WAIT_S + 0.1

    tell(story)
