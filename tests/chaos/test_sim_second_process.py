"""Two processes with one broker id, on two machines: one is refused or ends, and no promise is broken."""

from dataclasses import replace

import pytest

from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import SimulatedRun, run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice

PLAN = replace(
    plan_of(1, 16.0), brokers=4, voters=3, clock_rates=(1.0,) * 4, partitions=4, seekers=0, chores=(), faults=()
)
OF_BROKER_1, OF_BROKER_4 = 2, 0
"""Seeds of a fault that has this target. Brokers 1 to 3 are voters."""


def after(kind: FaultKind | None, dice: int) -> SimulatedRun:
    """Run a cluster in which a second process starts, after another fault of the first one."""
    second = ScheduledFault(2.3, FaultKind.SECOND_PROCESS, TargetChoice.ANYBODY, 6.0, dice)
    faults = [second] if kind is None else [ScheduledFault(2.0, kind, TargetChoice.ANYBODY, 9.0, dice), second]
    run = run_plan(PLAN, faults)
    assert run.findings == ()
    return run


def test_a_second_voter_is_refused_its_address() -> None:
    run = after(None, OF_BROKER_1)
    assert run.actions["second-process-refused"] == 1
    assert run.actions["replaced-process-ended"] == 0


def test_a_second_broker_replaces_the_first_until_that_one_is_restarted() -> None:
    run = after(None, OF_BROKER_4)
    assert run.actions["second-process-refused"] == 0
    assert run.actions["replaced-process-ended"] == 2


@pytest.mark.parametrize("kind", [FaultKind.PAUSE, FaultKind.CUT_OFF], ids=lambda kind: kind.value)
def test_a_broker_that_comes_back_after_its_replacement_ends(kind: FaultKind) -> None:
    run = after(kind, OF_BROKER_4)
    assert run.actions["replaced-process-ended"] == 1
