"""Simulated brokers with two log directories: each is used, and the cluster serves while one of them is offline."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.chores import Chore, Due
from cordwood.chaos.sim.fault_injector import OFFLINE
from cordwood.chaos.sim.host import DATA
from cordwood.chaos.sim.plan import DISKS_S, plan_of
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World
from cordwood.cluster.metadata.commands import BrokerId

PLAN = replace(
    plan_of(1, 8.0),
    brokers=3,
    voters=3,
    partitions=4,
    seekers=0,
    consumer_members=(),
    share_members=(),
    chores=(),
    further_disks_s=(DISKS_S[2],),
    faults=(),
)


def test_both_log_directories_have_logs() -> None:
    async def scenario() -> World:
        world = await World(PLAN).begin()
        await asyncio.sleep(2)
        return world

    with undisturbed():
        world = simulated.run(scenario())
    for host in world.hosts.values():
        logs = [path for path in host.disk.files() if path.endswith(".log") and "/topics/" in path]
        assert {path.split("/")[1] for path in logs} == {"data", "data-2"}


@pytest.mark.parametrize("kind", [FaultKind.WRITE_ERROR, FaultKind.SYNC_ERROR], ids=lambda kind: kind.value)
def test_an_error_takes_a_log_directory_offline_and_others_lead(kind: FaultKind) -> None:
    """A send that waits longer than the bound of `chaos.checks.unavailable` would be a finding."""
    faults = [ScheduledFault(2.0 + at, kind, TargetChoice.LEADER, 2.0, dice) for at, dice in ((0.0, 1), (3.0, 2))]
    run = run_plan(PLAN, faults)
    assert run.findings == ()
    assert OFFLINE in {span.fault for span in run.faults}


def test_a_broker_whose_only_log_directory_fails_is_restarted() -> None:
    run = run_plan(
        replace(PLAN, further_disks_s=()), [ScheduledFault(2.0, FaultKind.WRITE_ERROR, TargetChoice.LEADER, 2.0, 2)]
    )
    assert run.findings == ()
    assert any("ends: it failed: all log directories are offline" in line for line in run.events)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.1)


def homes_of(world: World, broker_id: int) -> dict[tuple[str, int], str]:
    watched = world.hosts[broker_id].watched
    assert watched is not None
    return {(partition.topic, partition.index): partition.directory.path for partition in watched.replicas}


def recorded(world: World, broker_id: int) -> dict[tuple[str, int], str]:
    """Return the log directories that the metadata has, by their paths."""
    watched = world.hosts[broker_id].watched
    assert watched is not None
    paths = {directory.id: directory.path for directory in watched.replicas.directories}
    names = {topic.id: topic.name for topic in world.image.topics_by_id.values()}
    known = world.image.directories.get(BrokerId(broker_id), {})
    return {(names[topic_id], index): paths[directory] for (topic_id, index), directory in known.items()}


def in_sync(world: World, broker_id: int) -> set[tuple[str, int]]:
    return {
        (topic.name, index)
        for topic in world.image.topics_by_id.values()
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.isr
    }


def test_a_directory_that_cannot_be_opened_costs_only_its_replicas() -> None:
    async def scenario() -> None:
        settings = {**PLAN.settings, "log_segment_delete_delay_ms": 500}
        world = await World(replace(PLAN, settings=settings)).begin()
        host = world.hosts[1]
        await until(lambda: len(in_sync(world, 1)) > 3 and recorded(world, 1) == homes_of(world, 1))
        homes = homes_of(world, 1)
        lost = {place for place, path in homes.items() if path == f"{DATA}-2"}
        assert 0 < len(lost) < len(homes)
        host.kill()
        host.disk.faults.refuse_opens(f"{DATA}-2", code=errno.EIO)
        world.start(1)
        await until(lambda: host.watched is not None and host.watched.replicas.left_out != ())
        assert host.watched is not None
        assert [left_out.path for left_out in host.watched.replicas.left_out] == [f"{DATA}-2"]
        await until(lambda: in_sync(world, 1) == homes_of(world, 1).keys() == homes.keys())
        assert set(homes_of(world, 1).values()) == {DATA}
        await until(lambda: recorded(world, 1) == homes_of(world, 1))
        host.kill()
        host.disk.faults.heal()
        world.start(1)
        await until(lambda: host.watched is not None and in_sync(world, 1) == set(homes))
        assert not host.watched.replicas.left_out
        # What was copied again counts, and the old copies are removed.
        await until(lambda: homes_of(world, 1).keys() == homes.keys())
        assert set(homes_of(world, 1).values()) == {DATA}
        await until(lambda: not any(f"{DATA}-2/topics/" in path for path in host.disk.files()))

    with undisturbed():
        simulated.run(scenario())


def test_replicas_move_while_brokers_die() -> None:
    """Moves and kills at random times, as the seeds of a night have them; here, some of each for certain."""
    chores = tuple(Due(1.0 + 0.4 * at, Chore.DIRECTORIES_CHANGED, at) for at in range(30))
    faults = [
        ScheduledFault(2.0 + 1.5 * at, kind, TargetChoice.LEADER, 0.5, at)
        for at, kind in enumerate((FaultKind.KILL, FaultKind.POWER_CUT, FaultKind.DIE_IN_WRITE, FaultKind.RESTART))
    ]
    run = run_plan(replace(PLAN, seconds=12.0, chores=chores), faults)
    assert run.findings == ()
    assert run.actions["log-directories-changed"] > 15
