"""Answers in the history of simulated clients: watermarks, lookups, epoch ends, contents and faults."""

import random
from dataclasses import dataclass, replace

import pytest

from cordwood.chaos.checks.unavailable import BOUNDS, NO_BOUND, number_of
from cordwood.chaos.history import ACKS_ALL, BY_FOLLOWER, UNKNOWN, History
from cordwood.chaos.sim.chores import Chore, Due
from cordwood.chaos.sim.invariants import Seen
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.producer import ProducerPlan
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.schedule import FaultKind, ScheduledFault, TargetChoice


@pytest.fixture(scope="module")
def history() -> History:
    """Return the history of three brokers, kills of leaders, and two consumers, one of which reads from followers."""
    kills = tuple(ScheduledFault(at_s, FaultKind.KILL, TargetChoice.LEADER, 0.5, 1) for at_s in (3.0, 7.0))
    drawn = plan_of(1, 10.0)
    plan = replace(
        drawn,
        chores=tuple(due for due in drawn.chores if due.chore is not Chore.MIN_ISR),
        brokers=3,
        voters=3,
        partitions=1,
        consumers=2,
        members=0,
        clock_rates=(1.0,) * 3,
        producers=(ProducerPlan(True, ACKS_ALL, 0.05, 8, 32),),
        faults=kills,
    )
    run = run_plan(plan, kills)
    assert run.findings == ()
    return run.history


def test_every_question_is_asked_and_answered(history: History) -> None:
    assert len(history.lookups) > 2
    assert (history.lookups.offset > 0).any()
    assert len(history.epoch_ends) > 2
    assert (history.epoch_ends.wanted < history.epoch_ends.leader_epoch).any()
    assert len(history.elections) > 1
    assert len(set(history.batches.leader_epoch.tolist())) > 1


def test_a_response_is_recorded_with_all_its_fields(history: History) -> None:
    reported = history.watermarks
    assert (reported.invoked_ns < reported.at_ns).all()
    assert {BY_FOLLOWER} < set(reported.leader_epoch.tolist())
    assert (reported.last_stable != UNKNOWN).any()
    has_read = reported.read_end != UNKNOWN
    assert has_read.any()
    assert (reported.leaders_end[has_read] >= reported.read_end[has_read]).all()
    assert (reported.leaders_end[~has_read] == UNKNOWN).all()


def test_records_are_sent_and_read_with_contents(history: History) -> None:
    assert (history.polls.content != UNKNOWN).all()
    assert set(history.polls.content.tolist()) <= set(history.sends.content.tolist())
    assert len(set(history.polls.content.tolist())) > 10


def test_faults_are_written_down_with_whether_they_came_alone(history: History) -> None:
    assert history.faults.kind.tolist() == [number_of("kill")] * 2
    assert history.faults.is_alone.tolist() == [1, 1]
    assert (history.faults.until_ns - history.faults.since_ns == 500_000_000).all()


def test_a_fault_has_no_bound_where_every_replica_is_needed() -> None:
    all_three = next(dice for dice in range(100) if random.Random(dice).randint(1, 3) == 3)
    kill = ScheduledFault(5.0, FaultKind.KILL, TargetChoice.LEADER, 4.0, 1)
    plan = replace(
        plan_of(1, 10.0),
        brokers=3,
        voters=3,
        producers=(ProducerPlan(True, ACKS_ALL, 0.05, 8, 32),),
        faults=(kill,),
        chores=(Due(1.0, Chore.MIN_ISR, all_three),),
    )
    run = run_plan(plan, (kill,))
    assert run.findings == ()
    assert run.history.faults.kind.tolist() == [NO_BOUND, number_of("kill")]
    assert run.history.faults.is_alone.tolist() == [0, 0]


def test_every_kind_of_fault_has_its_bound() -> None:
    assert {kind.value for kind in FaultKind} >= set(BOUNDS)
    assert BOUNDS["kill"].seconds == 3


@dataclass(eq=False)
class Replica:
    """A replica that may lead."""

    high_watermark: int
    is_leader: bool
    topic: str = "t"
    index: int = 0

    @property
    def leading(self) -> object:
        return self if self.is_leader else None


class HeldReplicas(list[Replica]):
    """The replicas of a broker."""

    def indexes(self, topic: str) -> list[int]:
        return [replica.index for replica in self if replica.topic == topic]

    def get(self, topic: str, index: int) -> Replica:
        [replica] = (replica for replica in self if (replica.topic, replica.index) == (topic, index))
        return replica


class Holder:
    def __init__(self, *replicas: Replica) -> None:
        self.replicas = HeldReplicas(replicas)


def test_only_leaders_commit_and_committed_records_survive_them() -> None:
    seen, leader, follower = Seen(), Replica(5, is_leader=True), Replica(9, is_leader=False)
    brokers = [Holder(leader), Holder(follower, Replica(8, is_leader=True, index=1))]
    assert seen.leaders_end(brokers, "t", 0) == 5  # type: ignore[arg-type]
    leader.high_watermark = 7
    seen.note_leaders_ends(brokers[:1], "t")  # type: ignore[arg-type]
    assert seen.leaders_end(brokers[1:], "t", 0) == 7  # type: ignore[arg-type]
    assert seen.leaders_end([], "t", 1) == 8
    follower.is_leader = True
    assert seen.leaders_end(brokers[1:], "t", 0) == 9  # type: ignore[arg-type]
