"""Random member actions and delays: the group keeps its invariants."""

from group_scenario import Asked, GroupScenario
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.rebalance import State

names = st.sampled_from(["anna", "ben", "carl", "one", "two"])
protocols = st.sampled_from(["range", "range sticky", "range sticky", "sticky range"])
STATIC = {"one": "rack-1", "two": "rack-2"}


class AnyStory(RuleBasedStateMachine):
    """Five clients, two of them static, a disk that may be slow or full, and arbitrary odd requests."""

    def __init__(self) -> None:
        super().__init__()
        self.story = GroupScenario(size_max=4, initial_rebalance_delay_ms=0)
        self.asked: list[Asked] = []
        self.generation = 0

    @initialize(first=st.lists(names, unique=True, max_size=4))
    def begin(self, first: list[str]) -> None:
        for name in first:
            self.join(name, True, "range sticky")
        self.rebalance(set())

    @rule(name=names, knows_id=st.sampled_from([True, True, False]), protocol=protocols)
    def join(self, name: str, knows_id: bool, protocol: str) -> None:
        changes: dict[str, object] = {"protocols": protocol, "instance_id": STATIC.get(name)}
        if not knows_id:
            changes["member_id"] = ""
        asked = self.story.ask_to_join(name, **changes)
        if asked.is_waiting:
            waiting = [member.id for member in self.story.group.members if member.id.startswith(f"{name}-")]
            if not knows_id or name not in self.story.ids:
                self.story.ids[name] = waiting[-1]
        elif asked.code is ErrorCode.member_id_required and knows_id:
            self.join(name, knows_id, protocol)
        self.asked.append(asked)

    @rule(name=names, generation_back=st.integers(0, 1))
    @precondition(lambda self: self.story.members)
    def sync(self, name: str, generation_back: int) -> None:
        generation = self.story.generation - generation_back
        known = {other: f"{other} in {generation}".encode() for other in self.story.members}
        changes: dict[str, object] = {"generation": generation, "instance_id": STATIC.get(name)}
        self.asked.append(self.story.sync(name, known, **changes))

    @rule(absent=st.sets(names, max_size=1))
    @precondition(lambda self: self.story.members)
    def rebalance(self, absent: set[str]) -> None:
        """Have all members except `absent` rejoin and sync, as clients do on a rebalance."""
        for name in sorted(self.story.members - absent):
            if self.story.state is State.PREPARING_REBALANCE:
                self.join(name, True, "range sticky")
        for name in sorted(self.story.members - absent):
            if self.story.state is State.COMPLETING_REBALANCE:
                self.sync(name, 0)

    @rule(name=names)
    @precondition(lambda self: self.story.members)
    def heartbeat(self, name: str) -> None:
        self.story.heartbeat(name)

    @rule(name=names)
    @precondition(lambda self: self.story.members)
    def leave(self, name: str) -> None:
        self.story.leave(name)

    @rule(name=names, generation_back=st.integers(0, 1))
    @precondition(lambda self: self.story.members)
    def commit(self, name: str, generation_back: int) -> None:
        generation = self.story.generation - generation_back
        code = self.story.may_commit(name, generation)
        if generation_back and generation >= 0:
            assert code is not ErrorCode.none, "rule 10: a stale generation commits nothing"

    @rule(ms=st.sampled_from([1, 400, 5_000, 10_000, 70_000]), absent=st.sets(names, max_size=2))
    @precondition(lambda self: self.story.members)
    def pass_time(self, ms: int, absent: set[str]) -> None:
        self.story.pass_time(ms, *sorted(self.story.members - absent))

    @rule()
    def slow_disk(self) -> None:
        self.story.disk_waits = True

    @rule(code=st.sampled_from([ErrorCode.none, ErrorCode.coordinator_not_available]))
    @precondition(lambda self: self.story.disk_waits)
    def disk_answers(self, code: ErrorCode) -> None:
        self.story.disk_waits = False
        self.story.disk_answers(code)

    @rule()
    @precondition(lambda self: self.story.stored and self.story.state in (State.STABLE, State.EMPTY))
    def restart_broker(self) -> None:
        stored = self.story.stored[-1].group
        if stored.generation == self.story.generation and not self.story.disk_waits:
            self.story.restart_broker(stored)
            self.asked.clear()

    @invariant()
    def generations_go_up(self) -> None:
        assert self.story.generation >= self.generation
        self.generation = self.story.generation

    @invariant()
    def everyone_is_answered_once(self) -> None:
        assert all(asked.answers <= 1 for asked in self.asked)

    @invariant()
    def state_and_members_agree(self) -> None:
        group, members = self.story.group, self.story.group.members
        assert (group.state is State.EMPTY) <= (len(members) == 0)
        assert len(members) == 0 or members.leader in members.by_id
        assert members.static_ids == {member.instance_id: member.id for member in members if member.is_static}
        assert not set(members.pending) & set(members.by_id)
        assert group.pending_sync <= set(members.by_id)
        if group.state is not State.EMPTY:
            assert (group.state is State.PREPARING_REBALANCE) == (group.join_deadline_ms is not None)

    @invariant()
    def every_waiting_member_has_a_timer(self) -> None:
        """Check that each waiting request is one that a member of the group still holds."""
        waiting = sum(asked.is_waiting for asked in self.asked)
        held = sum((member.joining is not None) + (member.syncing is not None) for member in self.story.group.members)
        assert waiting == held
        assert waiting == 0 or self.story.group.next_deadline() is not None

    def teardown(self) -> None:
        """Check that without heartbeats the group becomes empty and no request waits."""
        self.story.disk_waits = False
        self.story.disk_answers()
        self.story.pass_time(3_600_000)
        assert self.story.group.is_vacant
        assert self.story.state is State.EMPTY
        assert not any(asked.is_waiting for asked in self.asked)
        assert self.story.group.next_deadline() is None


TestAnyStory = AnyStory.TestCase
TestAnyStory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
