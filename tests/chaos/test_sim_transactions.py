"""Simulated transactional clients: what they do, and that no transaction is torn."""

from dataclasses import replace

from cordwood.chaos.history import Outcome
from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.plan import Plan, plan_of, transactional_plan_of, without_other_writers
from cordwood.chaos.sim.run import SimulatedRun, run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.transactional_client import TransactionalPlan

SECONDS = 10.0
CLIENT = TransactionalPlan(
    is_v2=False,
    interval_s=0.02,
    timeout_s=2.0,
    patience_s=3.0,
    payload_bytes_max=32,
    input_partition=None,
    death_share=0.0,
    zombie_share=0.0,
    delayed_share=0.0,
)
RARE = {"transaction-given-up", "transaction-fenced"}
"""Actions that need luck. The seeds of a night have them."""


def plan(*clients: TransactionalPlan) -> Plan:
    """Return a plan with these clients and no others that write."""
    return replace(
        without_other_writers(plan_of(1, SECONDS)),
        partitions=3,
        faults=(),
        transactional=clients,
        committed_readers=1,
    )


def committed(run: SimulatedRun) -> int:
    transactions = run.history.transactions
    return int(((transactions.is_commit == 1) & (transactions.outcome == Outcome.OK)).sum())


def test_requests_that_are_delayed_on_older_connections_tear_no_transaction() -> None:
    run = run_plan(plan(replace(CLIENT, timeout_s=8.0, delayed_share=0.5)), ())
    assert run.findings == ()
    assert run.actions["request-on-an-older-connection"] > 20
    assert committed(run) > 20


def test_both_protocols_do_everything_while_their_coordinators_die() -> None:
    busy = replace(CLIENT, input_partition=1, death_share=0.2, zombie_share=0.2, delayed_share=0.1)
    kills = [
        ScheduledFault(at_s, kind, TargetChoice.TRANSACTIONS, 1.0, dice)
        for dice, (at_s, kind) in enumerate(((3.0, FaultKind.KILL), (6.0, FaultKind.POWER_CUT)))
    ]
    run = run_plan(plan(busy, replace(busy, is_v2=True, input_partition=0), replace(CLIENT, is_v2=True)), kills)
    assert run.findings == ()
    assert [span.what.endswith("(transactions)") for span in run.faults] == [True, True]
    transactional = {name for name in ACTIONS if "transaction" in name or "older" in name}
    assert {name for name in transactional if not run.actions[name]} <= RARE


def test_some_seeds_have_transactions_and_the_others_are_as_they_were() -> None:
    plans = [plan_of(seed) for seed in range(1, 101)]
    with_transactions = [plan for plan in plans if plan.transactional]
    assert 5 < len(with_transactions) < 25
    assert all(plan.committed_readers for plan in with_transactions)
    assert not any(plan.committed_readers for plan in plans if not plan.transactional)
    versions = {client.is_v2 for plan in with_transactions for client in plan.transactional}
    assert versions == {False, True}
    assert all(transactional_plan_of(seed).transactional for seed in range(1, 11))
