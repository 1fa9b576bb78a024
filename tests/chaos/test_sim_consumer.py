"""Simulated consumers: those that read from any replica (KIP-392) need no leader, and all others do."""

import asyncio
from dataclasses import replace

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.host import host_name
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.world import World

PLAN = replace(
    plan_of(1), brokers=3, voters=3, partitions=1, consumers=2, members=0, clock_rates=(1.0,) * 3, chores=(), faults=()
)


@pytest.mark.parametrize(("consumer", "gets_on"), [(0, False), (1, True)])
def test_who_is_cut_off_from_the_leader_gets_on_with_any_replica_only(consumer: int, gets_on: bool) -> None:
    async def scenario() -> None:
        world = await World(PLAN).begin()
        await asyncio.sleep(3)
        reader = world.clients.readers[consumer]
        world.network.cut(f"consumer-{consumer}", host_name(world.leader(0)))
        position, end = reader.position, world.committed_end(0)
        assert position > 0
        await asyncio.sleep(20)
        assert world.committed_end(0) > end + 10
        assert (reader.position > end + 5) == gets_on
        assert world.violations == []

    simulated.run(scenario())
