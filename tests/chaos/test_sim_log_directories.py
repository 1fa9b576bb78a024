"""Simulated brokers with two log directories: each is used, and the cluster serves while one of them is offline."""

import asyncio
from dataclasses import replace

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.fault_injector import OFFLINE
from cordwood.chaos.sim.plan import DISKS_S, plan_of
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World

PLAN = replace(
    plan_of(1, 8.0), brokers=3, voters=3, partitions=4, seekers=0, chores=(), further_disks_s=(DISKS_S[2],), faults=()
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
