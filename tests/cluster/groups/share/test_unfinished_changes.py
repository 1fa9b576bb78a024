"""Changes of share states that end half-way, at a write that fails or with their coordinator: members go on."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from share_group_scenario import ShareGroupScenario
from share_states_in_memory import KeptState
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.share.exchange import ShareHeartbeat
from cordwood.cluster.groups.share.states import RETRY_MS
from cordwood.storage.types import TopicPartition

FLIGHTS = UUID(int=1)
UNAVAILABLE = ErrorCode.coordinator_not_available


class ShareGroupsFixture(CoordinatorFixture):
    """A coordinator of a share group that has been read by one member, who has left."""

    def __init__(self) -> None:
        self.scenario = ShareGroupScenario(flights=3)
        super().__init__(1, self.scenario.context)

    async def begin(self) -> None:
        await self.assigned()
        await self.beat(-1)
        self.share_states.put(GROUP, FLIGHTS, 0, KeptState(1, 42))

    async def beat(self, epoch: int) -> int:
        """Send a heartbeat of the member. Return its epoch."""
        topics = frozenset({"flights"}) if epoch == 0 else None
        reply = await self.coordinator.shares.heartbeat(GROUP, ShareHeartbeat("anna", epoch, topics))
        assert reply.code is ErrorCode.none, reply
        return reply.member_epoch

    async def assigned(self) -> list[int]:
        """Join, and return the partitions that the member has after some heartbeats."""
        epoch = await self.beat(0)
        for _ in range(3):
            await asyncio.sleep(RETRY_MS / 1000)
            epoch = await self.beat(epoch)
        (member,) = self.coordinator.shares.group(GROUP).members
        return sorted(member.assigned.get(FLIGHTS, ()))

    async def delete(self) -> ErrorCode:
        """Delete the group's states of the topic. Return the code of the refusal."""
        try:
            outcomes = await self.coordinator.shares.delete_offsets(GROUP, ["flights"])
        except Refused as refusal:
            return refusal.code
        refusal = outcomes["flights"]
        return ErrorCode.none if refusal is None else refusal.code

    async def deletion_fails(self) -> None:
        """Delete the states while the share coordinators refuse it. They would not refuse it again."""
        self.share_states.code = UNAVAILABLE
        assert await self.delete() is UNAVAILABLE
        self.share_states.code = ErrorCode.none

    def first_state(self) -> KeptState | None:
        return self.share_states.kept.get((GROUP, FLIGHTS, 0))


def tell(story: Callable[[ShareGroupsFixture], Awaitable[None]]) -> None:
    async def scenario() -> None:
        groups = ShareGroupsFixture()
        await groups.begin()
        await story(groups)

    run(scenario())


def test_partitions_are_assigned_after_a_reset_that_could_not_be_written() -> None:
    """Nothing initializes them any more: they must not count as partitions whose initialization goes on."""

    async def story(groups: ShareGroupsFixture) -> None:
        groups.topic.refusal = UNAVAILABLE
        with pytest.raises(Refused):
            await groups.coordinator.shares.reset(GROUP, {TopicPartition("flights", 0): 7})
        groups.topic.refusal = None
        assert await groups.assigned() == [0, 1, 2]
        state = groups.first_state()
        assert state is not None
        assert state.start_offset == 42, "the reset was refused"

    tell(story)


@pytest.mark.parametrize("has_failed_over", [False, True])
def test_a_deletion_of_states_that_has_not_ended_ends_before_a_member_reads_the_topic(has_failed_over: bool) -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        await groups.deletion_fails()
        if has_failed_over:
            await groups.restart()
        assert await groups.assigned() == [0, 1, 2]
        state = groups.first_state()
        assert state is not None
        assert state.start_offset == -1

    tell(story)


def test_a_deletion_of_states_that_could_not_be_written_ends_too() -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        groups.topic.refusal = UNAVAILABLE
        assert await groups.delete() is UNAVAILABLE
        groups.topic.refusal = None
        assert await groups.assigned() == [0, 1, 2]

    tell(story)


def test_states_are_not_deleted_before_the_group_has_noted_it() -> None:
    """Otherwise a new coordinator would assign partitions without a state, from which no one can fetch."""

    async def story(groups: ShareGroupsFixture) -> None:
        groups.topic.refusal = UNAVAILABLE
        assert await groups.delete() is UNAVAILABLE
        await asyncio.sleep(RETRY_MS / 1000)
        with pytest.raises(Refused):
            await groups.beat(0)
        await asyncio.sleep(RETRY_MS / 1000)
        assert groups.first_state() == KeptState(1, 42)

    tell(story)


def test_a_deletion_that_fails_again_is_tried_again_after_a_while() -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        groups.share_states.code = UNAVAILABLE
        assert await groups.delete() is UNAVAILABLE
        assert await groups.assigned() == []
        groups.share_states.code = ErrorCode.none
        assert await groups.assigned() == [0, 1, 2]

    tell(story)


def test_a_start_offset_that_was_set_since_is_not_deleted() -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        await groups.deletion_fails()
        await groups.coordinator.shares.reset(GROUP, {TopicPartition("flights", 0): 7})
        assert await groups.assigned() == [0, 1, 2]
        state = groups.first_state()
        assert state is not None
        assert state.start_offset == 7

    tell(story)


def test_a_member_that_joins_while_states_are_deleted_gets_the_topic_after_that() -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        groups.topic.hold()
        deletion = asyncio.ensure_future(groups.delete())
        await asyncio.sleep(0.001)
        joined = asyncio.ensure_future(groups.beat(0))
        await asyncio.sleep(0.001)
        groups.topic.release()
        assert await deletion is ErrorCode.none
        await joined
        assert await groups.assigned() == [0, 1, 2]

    tell(story)


def test_the_states_of_a_topic_that_went_while_the_coordinator_was_away_are_deleted() -> None:
    async def story(groups: ShareGroupsFixture) -> None:
        del groups.scenario.topics["flights"]
        await groups.restart()
        await asyncio.sleep(RETRY_MS / 1000)
        assert groups.share_states.kept == {}

    tell(story)
