"""Disks that acknowledge syncs and lose the bytes: a cluster on them loses records, and the checkers must report that.

No promise holds on such disks, so that a cluster of its own is run for them. It proves that a sync counts in the
simulator, and that the checkers see what a missing one costs.
"""

import asyncio
from dataclasses import replace

from cordwood.chaos.checks import Anomaly, check
from cordwood.chaos.report.summary import Span
from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.liveness import Unhealed, come_together
from cordwood.chaos.sim.plan import Plan, plan_of
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World
from cordwood.replication.log_directory import MARKS_FILE, TOPICS

LYING_DISK = "lying-disk"
"""The name of the fault in reports."""
UNNOTICED = "lying-disk-unnoticed"
LIES_S = 5.0
"""Simulated seconds of load before the power of all machines is cut."""


def span() -> Span:
    """Return the fault as reports have it."""
    return Span(LYING_DISK, "all disks of a further cluster", 0.0, LIES_S)


def unnoticed(seed: int) -> Anomaly | None:
    """Run a cluster on lying disks. Return a finding if the checkers do not report a lost write."""
    if "lost-write" in kinds_of(seed, is_lying=True):
        return None
    return Anomaly(UNNOTICED, f"no lost write is reported on disks that lose synced data (seed {seed})", (), 1)


def kinds_of(seed: int, *, is_lying: bool) -> set[str]:
    """Return the kinds of anomalies and violations after a power cut of all machines that keeps nothing unsynced."""
    with undisturbed():
        world = simulated.run(_scenario(_plan(seed), is_lying))
        found = {anomaly.kind for anomaly in check(world.clients.history.build())}
    return found | {seen.kind for seen in world.violations}


def _plan(seed: int) -> Plan:
    """Return the plan of a seed without what would hide a loss.

    An archive has the records that the disks lost, and the log cleaner syncs rewritten segments in another directory,
    where syncs count.
    """
    plan = plan_of(seed)
    return replace(
        plan,
        settings={**plan.settings, "remote_storage_enable": False, "log_cleaner_enable": False},
        brokers=3,
        voters=3,
        partitions=1,
        producers=plan.producers[:1],
        seekers=0,
        members=0,
        consumer_members=(),
        share_members=(),
        chores=(),
        faults=(),
    )


async def _scenario(plan: Plan, is_lying: bool) -> World:
    world = await World(plan).begin()
    if is_lying:
        for host in world.hosts.values():
            # Recovery would find by a flush mark what is lost, and nothing would be led.
            for path in (f"/{TOPICS}/", f"/{MARKS_FILE}"):
                host.disk.faults.lie_about_syncs(path)
    await asyncio.sleep(LIES_S)
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
