"""Simulated members of share groups: what their history says about the leaders that answered."""

import asyncio
import random
from dataclasses import replace

from cordwood.chaos.history import Outcome
from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.group_plans import SHARE_GROUP, SHARE_GROUP_NUMBER, SHARE_SETTINGS
from cordwood.chaos.sim.host import KAFKA_PORT, host_name
from cordwood.chaos.sim.kafka import SimulatedClient
from cordwood.chaos.sim.plan import TOPIC, plan_of
from cordwood.chaos.sim.share_member import SharePlan, SimulatedShareMember
from cordwood.chaos.sim.world import World

SHARING = SharePlan(SHARE_GROUP, SHARE_GROUP_NUMBER, life_s=1000.0)
QUIET = plan_of(1)
PLAN = replace(
    QUIET,
    brokers=3,
    voters=3,
    partitions=1,
    consumers=0,
    members=0,
    clock_rates=(1.0,) * 3,
    chores=(),
    faults=(),
    share_members=(SHARING,),
    settings={**QUIET.settings, **SHARE_SETTINGS},
)
NUMBER = 99


def test_a_delivery_has_the_epoch_of_the_leader_that_answered_and_not_of_the_metadata() -> None:
    async def scenario() -> None:
        world = await World(PLAN).begin()
        bootstrap = [(host_name(broker_id), KAFKA_PORT) for broker_id in PLAN.broker_ids]
        client = SimulatedClient("late", TOPIC, bootstrap, random.Random(1), world.clients.did)
        history = world.clients.history
        member = SimulatedShareMember(client, NUMBER, SHARING, history, world.alarm, world.leading_epoch)
        context = simulated.Process("late").context()
        running = world.loop.create_task(member.run(), context=context)
        await asyncio.sleep(5)
        # As after metadata of another broker, which knows of an election before the leader does.
        client.leader_epochs[0] += 1
        await asyncio.sleep(5)
        running.cancel()
        acquisitions = history.build().acquisitions
        is_own = (acquisitions.member == NUMBER) & (acquisitions.outcome == Outcome.OK)
        epochs = acquisitions.leader_epoch[is_own & (acquisitions.begin < acquisitions.end)]
        assert len(epochs) > 10
        assert set(epochs.tolist()) == {world.image.topics_by_name[TOPIC].partitions[0].leader_epoch}

    simulated.run(scenario())
