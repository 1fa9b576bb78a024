"""Losses of closed segments in simulated clusters: each strikes, and is repaired from other replicas."""

import asyncio
import contextlib
import random
from dataclasses import replace

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.chores import Chore, Due
from cordwood.chaos.sim.fault_injector import FaultInjector
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import (
    LOSSES,
    FaultKind,
    ScheduledFault,
    TargetChoice,
    drawn_losses,
    drawn_lost_end,
)
from cordwood.chaos.sim.undisturbed import undisturbed
from cordwood.chaos.sim.world import World

DRAWN = plan_of(1, 10.0)
PLAN = replace(
    DRAWN,
    brokers=3,
    voters=3,
    partitions=2,
    clock_rates=(1.0,) * 3,
    settings={**DRAWN.settings, "log_segment_bytes": 4096},
    consumer_members=(),
    share_members=(),
    chores=(),
    faults=(),
)
WIPE = ScheduledFault(2.0, FaultKind.WIPE, TargetChoice.LEADER, 1.0, 1)


@pytest.mark.parametrize("kind", LOSSES, ids=lambda kind: kind.value)
def test_a_loss_harms_one_file_of_a_log(kind: FaultKind) -> None:
    async def scenario() -> tuple[set[str], set[str]]:
        world = await World(PLAN).begin()
        await asyncio.sleep(3.0)
        before = readable(world)
        assert FaultInjector(world).strike(ScheduledFault(3.0, kind, TargetChoice.LEADER, 0.0, 1))
        return set(before), {path for path, content in before.items() if readable(world).get(path) != content}

    with undisturbed():
        files, harmed = simulated.run(scenario())
    (path,) = harmed
    assert path.endswith(".log")
    assert any(other > path for other in files if other.startswith(path.rpartition("/")[0]) and other.endswith(".log"))


def readable(world: World) -> dict[str, bytes]:
    """Return all files of all hosts, without those that cannot be read."""
    found = {}
    for host in world.hosts.values():
        for path in host.disk.files():
            with contextlib.suppress(OSError):
                host.disk.faults.check_read(path, 0, 1 << 62)
                found[f"{host.name}:{path}"] = host.disk.content(path)
    return found


@pytest.mark.parametrize("kind", LOSSES, ids=lambda kind: kind.value)
def test_a_loss_is_repaired(kind: FaultKind) -> None:
    run = run_plan(PLAN, [ScheduledFault(3.0, kind, TargetChoice.LEADER, 0.0, 1)])
    assert [span.fault for span in run.faults] == [kind.value]
    assert run.findings == ()


def test_a_loss_waits_until_there_is_a_closed_segment() -> None:
    run = run_plan(PLAN, [ScheduledFault(0.0, FaultKind.FILE_ZEROED, TargetChoice.ANYBODY, 0.0, 1)])
    (span,) = run.faults
    assert span.start_s > 0.0
    assert run.findings == ()


def test_a_loss_that_would_be_the_second_does_not_strike() -> None:
    kill = ScheduledFault(0.0, FaultKind.KILL, TargetChoice.ANYBODY, 10.0, 1)
    run = run_plan(PLAN, [kill, ScheduledFault(0.5, FaultKind.FILE_MISSING, TargetChoice.ANYBODY, 0.0, 1)])
    assert [span.fault for span in run.faults] == ["kill"]
    assert run.findings == ()


def test_a_quarter_of_all_seeds_has_losses_of_every_kind() -> None:
    drawn = [drawn_losses(random.Random(seed), 30.0) for seed in range(100)]
    assert 10 < sum(map(bool, drawn)) < 40
    assert {fault.kind for faults in drawn for fault in faults} == set(LOSSES)


@pytest.mark.parametrize("dice", range(6))
def test_a_log_loses_its_end_while_its_broker_is_down(dice: int) -> None:
    async def scenario() -> None:
        world = await World(PLAN).begin()
        await asyncio.sleep(3.0)
        assert FaultInjector(world).strike(ScheduledFault(3.0, FaultKind.END_LOST, TargetChoice.LEADER, 0.5, dice))
        (host,) = (host for host in world.hosts.values() if not host.is_running)
        async with asyncio.timeout(20.0):
            while host.watched is None or not host.watched.damage.found:
                await asyncio.sleep(0.1)

    with undisturbed():
        simulated.run(scenario())


@pytest.mark.parametrize("dice", range(6))
def test_a_log_that_has_lost_its_end_gets_it_back(dice: int) -> None:
    run = run_plan(PLAN, [ScheduledFault(3.0, FaultKind.END_LOST, TargetChoice.LEADER, 0.5, dice)])
    assert [span.fault for span in run.faults] == ["end-lost"]
    assert run.findings == ()


def test_the_disk_that_has_lost_data_is_the_one_that_loses_an_end() -> None:
    lost = ScheduledFault(3.0, FaultKind.FILE_ZEROED, TargetChoice.LEADER, 0.0, 1)
    for dice in range(4):
        run = run_plan(PLAN, [lost, ScheduledFault(5.0, FaultKind.END_LOST, TargetChoice.ANYBODY, 0.5, dice)])
        assert [span.fault for span in run.faults] == ["file-zeroed", "end-lost"]
        assert len({span.what.partition(" ")[0] for span in run.faults}) == 1
        assert run.findings == ()


@pytest.mark.parametrize("dice", [8, 27, 35, 39, 45, 50])
def test_no_power_cut_sets_back_the_flush_mark_of_a_log_that_has_lost_its_end(dice: int) -> None:
    """A blackout between the loss and the next start made a torn write of it: its broker led without the records.

    With a power cut of that broker, each of these runs finds an anomaly.
    """
    lost = ScheduledFault(3.0, FaultKind.END_LOST, TargetChoice.LEADER, 2.0, dice)
    run = run_plan(PLAN, [lost, ScheduledFault(3.5, FaultKind.BLACKOUT, TargetChoice.ANYBODY, 0.3, dice)])
    assert [span.fault for span in run.faults] == ["end-lost", "blackout"]
    assert run.findings == ()


def test_half_of_all_seeds_may_lose_an_end_late() -> None:
    drawn = [drawn_lost_end(random.Random(seed), 30.0) for seed in range(100)]
    assert 30 < sum(map(bool, drawn)) < 70
    assert {fault.kind for faults in drawn for fault in faults} == {FaultKind.END_LOST}
    assert min(fault.at_s for faults in drawn for fault in faults) > 15.0


def test_a_disk_is_lost_only_while_two_copies_of_each_record_are_promised() -> None:
    run = run_plan(replace(PLAN, chores=(Due(0.5, Chore.MIN_ISR, to_min_isr(1)),)), [WIPE])
    assert run.actions["min-isr-changed"] == 1
    assert run.faults == ()
    run = run_plan(replace(PLAN, chores=(Due(0.5, Chore.MIN_ISR, to_min_isr(2)),)), [WIPE])
    assert [span.fault for span in run.faults] == ["wipe"]
    assert run.findings == ()


def test_one_copy_is_not_made_enough_while_a_disk_has_lost_data() -> None:
    wiped = replace(WIPE, at_s=0.5)
    run = run_plan(replace(PLAN, chores=(Due(1.0, Chore.MIN_ISR, to_min_isr(1)),)), [wiped])
    assert [span.fault for span in run.faults] == ["wipe"]
    assert run.actions["min-isr-changed"] == 0
    assert run.findings == ()


def to_min_isr(wanted: int) -> int:
    """Return the dice of a chore that sets `min.insync.replicas` to this value."""
    return next(dice for dice in range(100) if random.Random(dice).randint(1, 3) == wanted)
