"""Random leader changes during commits and compactions: an acknowledged group offset never goes back (rule 10)."""

import asyncio
from collections.abc import Awaitable, Callable

from coordinator_fixture import GROUP, CoordinatorFixture
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode
from virtual_time import VirtualTimeLoop

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity

BROKERS = range(1, 4)
PLACE = ("flights", 0)


class AnyFailover(RuleBasedStateMachine):
    """A member whose commits increase, whether or not it learns the outcome of the previous one (rule 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.reported = 0
        self.newest = 0
        self.runner.run(self.begin())

    async def begin(self) -> None:
        self.groups = CoordinatorFixture(brokers=len(BROKERS))
        await self.groups.stabilize("anna")

    @rule()
    def commit(self) -> None:
        self.newest += 1
        self.begin_work(self.committed(self.newest))

    @rule()
    def compact(self) -> None:
        self.turn(self.groups.compact)

    @rule(broker=st.sampled_from(BROKERS), keeping=st.integers(0, 4))
    def elect(self, broker: int, keeping: int) -> None:
        self.turn(lambda: self.groups.elect(broker, keeping=keeping))

    @rule(broker=st.sampled_from(BROKERS), keeping=st.integers(0, 4))
    def elect_unheard(self, broker: int, keeping: int) -> None:
        """Elect a leader; the brokers learn of it with the next change."""
        self.turn(lambda: self.groups.topic.elect(self.groups.partition, broker, keeping=keeping))

    @rule()
    def hold(self) -> None:
        self.turn(self.groups.topic.hold)

    @rule()
    def release(self) -> None:
        self.turn(self.groups.topic.release)

    @rule()
    def read_slowly(self) -> None:
        self.turn(self.groups.topic.read_gate.clear)

    @rule()
    def read_on(self) -> None:
        self.turn(self.groups.topic.read_gate.set)

    @rule()
    def commit_in_an_old_generation(self) -> None:
        self.begin_work(self.refused_as_old())

    @invariant()
    def no_reported_offset_goes_back(self) -> None:
        self.turn(self.ask_everybody)

    def ask_everybody(self) -> None:
        for coordinator in self.groups.coordinators.values():
            try:
                found = coordinator.offsets_of(GROUP)
            except Refused:
                continue
            offset = found[PLACE].offset if PLACE in found else 0
            assert offset >= self.reported, f"rule 10: {offset} after {self.reported}"
            self.reported = offset

    def teardown(self) -> None:
        """Check that the group is served again at the end, with the state in the log."""
        self.runner.run(self.end())
        self.runner.close()

    async def end(self) -> None:
        self.groups.topic.read_gate.set()
        self.groups.topic.release()
        self.groups.elect(1)
        await self.groups.loaded()
        assert self.groups.heartbeat("anna") is ErrorCode.none
        await self.committed(self.newest + 1)
        assert self.groups.offsets() == {PLACE: self.reported} == {PLACE: self.newest + 1}
        for coordinator in self.groups.coordinators.values():
            await coordinator.close()

    async def committed(self, offset: int) -> None:
        try:
            await self.groups.commit(offset, "anna")
        except Refused:
            return
        self.reported = max(self.reported, offset)

    async def refused_as_old(self) -> None:
        old = MemberIdentity(self.groups.members["anna"], self.groups.generation - 1)
        try:
            await self.groups.coordinator.commit(GROUP, old, {PLACE: Commit(0, -1, "")})
        except Refused:
            return
        raise AssertionError("rule 10: an old generation has committed")

    def begin_work(self, work: Awaitable[None]) -> None:
        self.turn(lambda: asyncio.ensure_future(work))

    def turn(self, act: Callable[[], object]) -> None:
        """Run an action, and let all tasks proceed without waiting."""

        async def turns() -> None:
            act()
            for _ in range(20):
                await asyncio.sleep(0)

        self.runner.run(turns())


TestAnyFailover = AnyFailover.TestCase
TestAnyFailover.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
