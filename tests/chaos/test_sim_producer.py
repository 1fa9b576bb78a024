"""Simulated producers: only a send that was certainly not written is recorded as failed."""

from dataclasses import replace

from cordwood.chaos.history import ACKS_ALL, Outcome
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.producer import ProducerPlan
from cordwood.chaos.sim.run import run_plan, run_seed
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice

CUTS = tuple(
    ScheduledFault(at_s, FaultKind.CUT_OFF, TargetChoice.LEADER, 4.0, dice) for dice, at_s in enumerate((2.0, 7.0))
)
PLAN = replace(
    plan_of(1, 12.0),
    brokers=3,
    voters=3,
    partitions=1,
    consumers=1,
    members=0,
    clock_rates=(1.0,) * 3,
    producers=(ProducerPlan(False, ACKS_ALL, 0.05, 8, 32), ProducerPlan(True, ACKS_ALL, 0.05, 8, 32)),
    faults=CUTS,
)


def test_a_send_that_finds_too_few_replicas_is_refused_unless_it_is_sent_again() -> None:
    run = run_plan(PLAN, CUTS)
    is_idempotent = run.history.sends.producer == 1
    refused = run.history.sends.outcome == Outcome.FAIL
    assert run.findings == ()
    assert refused.any()
    assert not (refused & is_idempotent).any()


def test_the_last_sends_without_an_answer_are_waited_for_before_the_logs_are_read() -> None:
    """In this seed one is on its way when everything else is at rest, and is read while the archive is waited for."""
    assert run_seed(1634, 30.0).findings == ()
