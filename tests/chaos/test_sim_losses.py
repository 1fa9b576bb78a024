"""Losses of closed segments in simulated clusters: each strikes, and is repaired from other replicas."""

import random
from dataclasses import replace

import pytest

from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import LOSSES, FaultKind, ScheduledFault, TargetChoice, drawn_losses

WITHOUT_LOSSES = plan_of(1, 10.0)
PLAN = replace(
    WITHOUT_LOSSES,
    brokers=3,
    voters=3,
    partitions=2,
    clock_rates=(1.0,) * 3,
    settings={**WITHOUT_LOSSES.settings, "log_segment_bytes": 4096},
    consumer_members=(),
    share_members=(),
    chores=(),
    faults=(),
)


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
