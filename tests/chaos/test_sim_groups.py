"""Simulated members of consumer-protocol and share groups: what they do, and that their groups keep their promises."""

from dataclasses import replace

from cordwood.chaos.history import AckType, Outcome
from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.classic_member import assignment, partitions_in, subscription
from cordwood.chaos.sim.consumer_member import MemberPlan
from cordwood.chaos.sim.group_plans import (
    CONSUMER_GROUP,
    CONSUMER_GROUP_NUMBER,
    CONSUMER_SETTINGS,
    SHARE_GROUP,
    SHARE_GROUP_NUMBER,
    SHARE_SETTINGS,
)
from cordwood.chaos.sim.plan import Plan, plan_of, without_other_writers
from cordwood.chaos.sim.producer import ProducerPlan
from cordwood.chaos.sim.run import SimulatedRun, run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice
from cordwood.chaos.sim.share_member import SharePlan
from cordwood.cluster.groups.subscription import topics_of

SECONDS = 20.0
PRODUCER = ProducerPlan(True, -1, 0.05, 8, 64)
MEMBER = MemberPlan(CONSUMER_GROUP, CONSUMER_GROUP_NUMBER, life_s=3.0, slow_share=0.2, lost_share=0.1)
SHARING = SharePlan(SHARE_GROUP, SHARE_GROUP_NUMBER, life_s=3.0)
KILLS = tuple(
    ScheduledFault(at_s, kind, aim, 1.0, dice)
    for dice, (at_s, kind, aim) in enumerate(
        (
            (4.0, FaultKind.KILL, TargetChoice.GROUPS),
            (8.0, FaultKind.KILL, TargetChoice.LEADER),
            (12.0, FaultKind.POWER_CUT, TargetChoice.GROUPS),
            (16.0, FaultKind.PAUSE, TargetChoice.GROUPS),
        )
    )
)
RARE = {"share-session-lost", "share-member-fenced", "member-fenced", "instance-unreleased"}
"""Actions that need luck. The seeds of a night have them."""


def plan(*members: MemberPlan, shares: tuple[SharePlan, ...] = ()) -> Plan:
    """Return a plan with these members of groups, and one producer."""
    quiet = without_other_writers(plan_of(1, SECONDS))
    return replace(
        quiet,
        partitions=3,
        faults=(),
        producers=(PRODUCER,),
        consumer_members=members,
        share_members=shares,
        settings={**quiet.settings, **CONSUMER_SETTINGS, **SHARE_SETTINGS},
    )


def never_did(run: SimulatedRun, word: str) -> set[str]:
    """Return the actions with a word in their names that did not occur."""
    return {name for name in ACTIONS if word in name and not run.actions[name]}


def test_members_come_and_go_while_their_coordinators_die() -> None:
    run = run_plan(plan(MEMBER, replace(MEMBER, pattern="cha.*"), replace(MEMBER, is_static=True)), KILLS)
    assert run.findings == ()
    assert (
        never_did(run, "member-") - {"member-joins-with-the-classic-protocol"} - RARE
        == {name for name in ACTIONS if name.startswith("share-member")} - RARE
    )
    owned = run.history.ownerships
    assert ((owned.until_ns > owned.since_ns) & (owned.coordinator > 0)).sum() > 10


def test_a_group_is_migrated_member_by_member_in_both_directions() -> None:
    member = replace(MEMBER, classic_share=0.5, life_s=2.0)
    run = run_plan(plan(member, member, member), KILLS[:2])
    assert run.findings == ()
    assert run.actions["member-joins-with-the-classic-protocol"] > 3
    assert run.actions["member-joins"] > 3


def test_members_of_a_share_group_do_everything_while_leaders_and_coordinators_die() -> None:
    run = run_plan(plan(shares=(SHARING, replace(SHARING, is_record_limited=True), SHARING)), KILLS)
    assert run.findings == ()
    assert never_did(run, "share-") - RARE == set()
    reported = run.history.acknowledgements
    for kind in AckType:
        if kind is not AckType.GAP:
            assert ((reported.type == kind) & (reported.outcome == Outcome.OK)).any(), f"no {kind.name} succeeded"


def test_some_seeds_have_groups_of_the_new_kinds_and_the_others_are_as_they_were() -> None:
    plans = [plan_of(seed) for seed in range(1, 201)]
    with_members = [plan for plan in plans if plan.consumer_members]
    with_shares = [plan for plan in plans if plan.share_members]
    assert 10 < len(with_members) < 45
    assert 10 < len(with_shares) < 45
    assert any(member.classic_share for plan in with_members for member in plan.consumer_members)
    others = [plan for plan in plans if not plan.consumer_members and not plan.share_members]
    assert not any(fault.aim is TargetChoice.GROUPS for plan in others for fault in plan.faults)


def test_the_bytes_of_a_classic_consumer() -> None:
    assert topics_of(subscription("flights")) == {"flights"}
    assert [*partitions_in(assignment("flights", (0, 2)), "flights")] == [0, 2]
    assert [*partitions_in(assignment("flights", (0, 2)), "others")] == []
    assert [*partitions_in(b"", "flights")] == []
