"""Large requests are handled in slices of the event loop; the client's later requests stay intact and in order."""

import asyncio

from loop_steps import LongestStep
from many_partitions import BATCH, PARTITIONS, fetch, produce, tell

from cordwood.bench.counters.cluster import CountedCluster, check_produced, fetched_bytes
from cordwood.chaos.sim.kafka import SimulatedClient

CALLS_MAX = 30_000
LARGE = 20_000
"""The partitions of a Fetch that is parsed in the receive buffer (`BUFFER_BYTES_USUAL`)."""


def test_requests_after_a_large_one_are_appended_after_it() -> None:
    async def story(cluster: CountedCluster, producing: SimulatedClient, consuming: SimulatedClient) -> None:
        leader = cluster.leader(0)
        everywhere, last = range(PARTITIONS), PARTITIONS - 1
        check_produced(await producing.ask(leader, produce(0)))
        with LongestStep() as longest:
            large = asyncio.ensure_future(producing.ask(leader, produce(*everywhere)))
            small = [asyncio.ensure_future(producing.ask(leader, produce(last))) for _ in range(20)]
            answers = await asyncio.gather(large, *small)
        assert longest.calls < CALLS_MAX
        for answer in answers:
            check_produced(answer)
        offsets = [answer.responses[0].partition_responses[-1].base_offset for answer in answers]
        assert offsets == list(range(21)), "in the order in which they were sent"
        held = fetched_bytes(await consuming.ask(leader, fetch(everywhere, 1)))
        assert held == (PARTITIONS + 21) * len(BATCH), "every batch is whole, and there once"

    tell(story)


def test_requests_after_one_that_is_read_in_place_are_whole() -> None:
    async def story(cluster: CountedCluster, producing: SimulatedClient, _consuming: SimulatedClient) -> None:
        leader = cluster.leader(0)
        check_produced(await producing.ask(leader, produce(0)))
        asked = [fetch([0] * LARGE, 1), produce(1), fetch([0] * LARGE, 1), fetch([0], 1), produce(2)]
        answers = await asyncio.gather(*(producing.ask(leader, request) for request in asked))
        assert [fetched_bytes(answers[number]) for number in (0, 2, 3)] == [len(BATCH)] * 3
        check_produced(answers[1])
        check_produced(answers[4])
        watched = cluster.world.hosts[1].watched
        assert watched is not None
        assert watched.memory.pending.used == 0

    tell(story)
