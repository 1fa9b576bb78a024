"""A produce of many partitions is handled in slices of the loop's time. What its client sends next stays behind it."""

import asyncio

from loop_steps import LongestStep
from many_partitions import BATCH, PARTITIONS, fetch, produce, tell

from cordwood.bench.counters.cluster import Cluster, check_produced, fetched_bytes
from cordwood.chaos.sim.kafka import Client

CALLS_MAX = 30_000


def test_requests_behind_a_large_one_are_appended_behind_it() -> None:
    async def story(cluster: Cluster, producing: Client, consuming: Client) -> None:
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
