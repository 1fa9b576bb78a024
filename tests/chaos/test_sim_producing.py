"""Simulated producers: what was certainly not written is written down as refused, and nothing else."""

import asyncio
from dataclasses import replace

from cordwood.chaos.checks import check
from cordwood.chaos.history import ACKS_ALL, History, Outcome
from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.producing import ProducerPlan
from cordwood.chaos.sim.world import World

PLAN = replace(
    plan_of(1),
    brokers=3,
    voters=3,
    partitions=1,
    consumers=1,
    members=0,
    clock_rates=(1.0,) * 3,
    producers=(ProducerPlan(False, ACKS_ALL, 0.05, 8, 32), ProducerPlan(True, ACKS_ALL, 0.05, 8, 32)),
    faults=(),
)


def test_a_send_that_finds_too_few_replicas_is_refused_unless_it_is_sent_again() -> None:
    async def story() -> History:
        world = await World(PLAN).begin()
        await asyncio.sleep(3)
        leader = world.leader(0)
        for broker_id in (1, 2, 3):
            if broker_id != leader:
                world.network.cut(f"broker-{broker_id}", f"broker-{leader}")
        await asyncio.sleep(10)
        world.network.heal()
        await asyncio.sleep(10)
        return world.crowd.history.build()

    history = simulated.run(story())
    is_idempotent = history.sends.producer == 1
    refused = history.sends.outcome == Outcome.FAIL
    assert refused.any()
    assert not (refused & is_idempotent).any()
    assert [anomaly.kind for anomaly in check(history) if anomaly.kind != "unseen"] == []
