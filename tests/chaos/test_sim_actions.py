"""Actions of simulated clients and administrators: each is counted, and each occurs in the runs of the suite."""

from collections import Counter
from dataclasses import replace

from cordwood.chaos.sim.actions import ACTIONS, counted
from cordwood.chaos.sim.chores import Chore, Due
from cordwood.chaos.sim.plan import Plan, plan_of
from cordwood.chaos.sim.producer import ProducerPlan
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice

SECONDS = 15.0
CHORE_S = 0.5
RARE = {
    "broker-unregistered",
    "fetch-session-lost",
    "flush-policy-os",
    "log-start-moved",
    "offset-out-of-range",
    "preferred-election",
    "replaced-process-ended",
    "replication-factor-1",
    "replication-factor-2",
    "replication-factor-3",
    "second-process-refused",
    "topic-made-again",
    "truncation-cut",
    "unclean-election",
} | {
    name
    for name in ACTIONS
    if "transaction" in name
    or name.startswith(("member-", "share-"))
    or name
    in {
        "request-on-an-older-connection",
        "instance-unreleased",
        "partitions-revoked",
        "revocation-slow",
        "heartbeat-answer-lost",
    }
}
"""Actions that need luck or several steps in a row, or a test of their own. The seeds of a night have them."""


def busy(seed: int) -> Plan:
    """Return a plan with every kind of chore, producers of all acks, consumers, seekers, and kills of leaders."""
    chores = (Chore.LOSSY_TOPIC_MADE, Chore.TOPIC_MADE, *Chore) * 2
    hasty = ProducerPlan(True, -1, 0.01, 64, 200, batches_in_flight=5)
    careless = [ProducerPlan(False, acks, 0.2, 8, 200) for acks in (0, 1)]
    return replace(
        plan_of(seed, SECONDS),
        brokers=5,
        voters=3,
        clock_rates=(1.0,) * 5,
        disk_s=(0.01, 0.03),
        cut_share=0.3,
        producers=(hasty, *careless),
        consumers=2,
        members=0,
        transactional=(),
        consumer_members=(),
        share_members=(),
        committed_readers=0,
        seekers=2,
        chores=tuple(Due(CHORE_S * at, chore, 100 * seed + at) for at, chore in enumerate(chores)),
        faults=tuple(ScheduledFault(3.0 * at, FaultKind.KILL, TargetChoice.LEADER, 1.5, at) for at in range(1, 5)),
    )


def test_what_never_happens_in_the_suite_is_known() -> None:
    actions: Counter[str] = Counter()
    for seed in (1, 4, 10):
        plan = busy(seed)
        run = run_plan(plan, plan.faults)
        assert run.findings == ()
        actions += run.actions
    never = {name for name, count in counted(actions).items() if not count}
    assert never <= RARE, f"no client ever did {never - RARE}"


def test_nothing_is_counted_under_an_unknown_name() -> None:
    assert {chore.value for chore in Chore} <= set(ACTIONS)
