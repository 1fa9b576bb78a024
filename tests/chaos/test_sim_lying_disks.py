"""Disks that acknowledge a sync and lose its bytes: no promise holds, and the checker reports the lost writes."""

import asyncio
from dataclasses import replace

from cordwood.chaos.checks import check
from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.liveness import Unhealed, come_together
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World

PLAN = replace(plan_of(1), brokers=3, voters=3, partitions=1, seekers=0, members=0, chores=(), faults=())


def kinds_of(*, is_lying: bool) -> set[str]:
    """Return the kinds of anomalies and violations after a power cut of all machines."""

    async def scenario() -> World:
        world = await World(PLAN).begin()
        if is_lying:
            for host in world.hosts.values():
                host.disk.faults.lie_about_syncs("/topics/")
        await asyncio.sleep(5)
        for host in world.hosts.values():
            host.power_cut(keep=0)
            host.disk.faults.heal()
        for host in world.hosts.values():
            host.start()
        try:
            await come_together(world)
        except Unhealed as unhealed:
            world.alarm("rule-11", str(unhealed))
        return world

    with undisturbed():
        world = simulated.run(scenario())
    found = {anomaly.kind for anomaly in check(world.clients.history.build())}
    return found | {seen.kind for seen in world.violations}


def test_what_a_lying_disk_loses_is_found() -> None:
    assert "lost-write" in kinds_of(is_lying=True)


def test_an_honest_disk_loses_nothing_in_the_same_run() -> None:
    assert kinds_of(is_lying=False) == set()
