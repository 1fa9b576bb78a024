"""The event-loop budget of groups: no event of a large group, or of many offsets, holds the loop for long (ADR 25)."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from coordinator_fixture import GROUP, PRODUCER, CoordinatorFixture
from kio.schema.errors import ErrorCode
from loop_steps import LongestStep

from cordwood.chaos.sim.loop import Process, run
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.groups.exchange import Join, JoinReply, Leaver, MemberProtocol, Sync, SyncReply
from cordwood.storage.types import TopicPartition

OFFSETS, OFFSETS_PER_REQUEST = 6_000, 500
MEMBERS = 1_000
PROTOCOLS = (MemberProtocol("range", b"no subscription"),)
CALLS_MAX = 30_000
"""Calls in one step of the loop; about 5 ms on a slow machine."""


class BudgetFixture:
    """A coordinator in a process of a broker, and requests to it that are tasks of their own, as in a broker.

    What is appended is committed in a later iteration.
    """

    def __init__(self, **settings: int) -> None:
        self.groups = CoordinatorFixture(**settings)
        self.groups.topic.hold()

    async def flush(self) -> None:
        """Commit what is appended, again and again."""
        while True:
            await asyncio.sleep(0.001)
            for partition in self.groups.topic.partitions:
                partition.commit()

    @property
    def coordinator(self) -> Any:
        return self.groups.coordinator

    async def ask(self, request: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.get_running_loop().create_task(request, context=Process("broker-1").context())

    async def call(self, event: Callable[..., object], *values: object) -> None:
        """Have the coordinator called, as by the log or the metadata."""

        async def called() -> None:
            event(*values)

        await self.ask(called())

    async def commit(self, *, is_transactional: bool = False) -> None:
        """Commit OFFSETS offsets, in requests as large as handlers make them."""
        for start in range(0, OFFSETS, OFFSETS_PER_REQUEST):
            places = [TopicPartition("flights", number) for number in range(start, start + OFFSETS_PER_REQUEST)]
            commits = dict.fromkeys(places, Commit(1, -1, "note"))
            member = MemberIdentity()
            if is_transactional:
                commit = self.coordinator.commit_in_transaction(GROUP, member, PRODUCER, commits, self._verify)
            else:
                commit = self.coordinator.commit(GROUP, member, commits)
            await self.ask(commit)

    async def join(self, member_id: str, number: int, **changes: Any) -> JoinReply:
        fields = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 60_000, "instance_id": f"instance {number}"}
        join = Join(member_id, "consumer", **{"protocols": PROTOCOLS, **fields, **changes})
        reply: JoinReply = await self.ask(self.coordinator.join(GROUP, join))
        return reply

    async def sync(self, reply: JoinReply, assignments: dict[str, bytes]) -> SyncReply:
        sync = Sync(reply.member_id, reply.generation, assignments=assignments)
        synced: SyncReply = await self.ask(self.coordinator.sync(GROUP, sync))
        return synced

    async def found(self, **changes: Any) -> list[JoinReply]:
        """Make a group of MEMBERS members. Return the replies of its second generation, the leader's first."""
        first = await self.join("", 0, **changes)
        joining = [asyncio.ensure_future(self.join("", number, **changes)) for number in range(1, MEMBERS)]
        await asyncio.sleep(1)
        return [await self.join(first.member_id, 0, **changes), *await asyncio.gather(*joining)]

    async def rebalance(self, joined: list[JoinReply]) -> list[JoinReply]:
        """Have all members join again, the leader first, which begins a generation."""
        return await asyncio.gather(*(self.join(reply.member_id, number) for number, reply in enumerate(joined)))

    async def stabilize(self, joined: list[JoinReply]) -> None:
        """Have the leader assign after all others wait for it."""
        syncing = [asyncio.ensure_future(self.sync(reply, {})) for reply in joined[1:]]
        await asyncio.sleep(1)
        assignments = dict.fromkeys((reply.member_id for reply in joined), b"some partitions")
        replies = [await self.sync(joined[0], assignments), *await asyncio.gather(*syncing)]
        assert {(reply.code, reply.assignment) for reply in replies} == {(ErrorCode.none, b"some partitions")}

    async def _verify(self, _place: TopicPartition) -> None: ...


def longest_step(story: Callable[[BudgetFixture], Coroutine[Any, Any, None]], **settings: int) -> int:
    """Return the calls of the broker's longest step."""

    async def told() -> None:
        fixture = await asyncio.get_running_loop().create_task(_made(settings), context=Process("broker-1").context())
        flushing = asyncio.ensure_future(fixture.flush())
        await story(fixture)
        flushing.cancel()

    # Otherwise a step is charged to finalize what earlier tests have left.
    gc.collect()
    with LongestStep() as longest:
        run(told())
    return longest.calls


async def _made(settings: dict[str, int]) -> BudgetFixture:
    return BudgetFixture(**settings)


async def _a_transaction_ends(fixture: BudgetFixture) -> None:
    await fixture.commit(is_transactional=True)
    await fixture.call(fixture.groups.end)
    await fixture.groups.until(lambda: not fixture.groups.pending())
    assert len(fixture.groups.offsets()) == OFFSETS


async def _a_shard_with_an_open_transaction_is_loaded(fixture: BudgetFixture) -> None:
    await fixture.commit()
    await fixture.commit(is_transactional=True)
    await fixture.ask(fixture.groups.restart())
    assert len(fixture.groups.pending()) == len(fixture.groups.offsets()) == OFFSETS


async def _a_group_is_deleted(fixture: BudgetFixture) -> None:
    await fixture.commit()
    await fixture.ask(fixture.coordinator.delete_group(GROUP))
    assert fixture.groups.offsets() == {}


async def _a_topic_is_deleted(fixture: BudgetFixture) -> None:
    await fixture.commit()
    await fixture.ask(fixture.coordinator._removal.forget_topics(frozenset({"flights"})))
    assert fixture.groups.offsets() == {}


async def _offsets_expire(fixture: BudgetFixture) -> None:
    await fixture.commit()
    await fixture.groups.until(lambda: not fixture.groups.offsets())
    await fixture.groups.until(lambda: fixture.coordinator.group(GROUP) is None)


async def _a_group_rebalances(fixture: BudgetFixture) -> None:
    joined = await fixture.found()
    assert len(joined[0].members) == MEMBERS
    await fixture.stabilize(joined)
    await fixture.stabilize(await fixture.rebalance(joined))


async def _a_rebalance_voids_a_generation(fixture: BudgetFixture) -> None:
    joined = await fixture.found()
    syncing = [asyncio.ensure_future(fixture.sync(reply, {})) for reply in joined[1:]]
    await asyncio.sleep(1)
    others = (MemberProtocol("range", b"another subscription"),)
    first = asyncio.ensure_future(fixture.join(joined[0].member_id, 0, protocols=others))
    assert {reply.code for reply in await asyncio.gather(*syncing)} == {ErrorCode.rebalance_in_progress}
    await fixture.ask(fixture.coordinator.leave(GROUP, [Leaver(reply.member_id) for reply in joined[1:]]))
    assert (await first).code is ErrorCode.none


async def _members_do_not_sync(fixture: BudgetFixture) -> None:
    joined = await fixture.found()
    first = await fixture.sync(joined[0], {})
    assert first.code is ErrorCode.none
    await fixture.groups.until(lambda: len(fixture.groups.group_size()) <= 1)


async def _members_do_not_join_again(fixture: BudgetFixture) -> None:
    joined = await fixture.found(instance_id=None, must_know_id=False)
    await fixture.stabilize(joined)
    again = await fixture.join(joined[0].member_id, 0, instance_id=None, must_know_id=False)
    assert (len(again.members), len(fixture.groups.group_size())) == (1, 1)


async def _members_leave(fixture: BudgetFixture) -> None:
    joined = await fixture.found()
    await fixture.stabilize(joined)
    codes = await fixture.ask(fixture.coordinator.leave(GROUP, [Leaver(reply.member_id) for reply in joined]))
    assert codes == [ErrorCode.none] * MEMBERS
    assert fixture.groups.group_size() == []


async def _a_group_is_loaded(fixture: BudgetFixture) -> None:
    await fixture.stabilize(await fixture.found())
    await fixture.ask(fixture.groups.restart())
    assert len(fixture.groups.group_size()) == MEMBERS


@pytest.mark.parametrize(
    "story",
    [
        _a_group_rebalances,
        _a_rebalance_voids_a_generation,
        _members_do_not_sync,
        _members_do_not_join_again,
        _members_leave,
        _a_group_is_loaded,
    ],
)
def test_a_classic_group_of_thousands_of_members_lets_others_in(
    story: Callable[[BudgetFixture], Coroutine[Any, Any, None]],
) -> None:
    assert longest_step(story) < CALLS_MAX


@pytest.mark.parametrize(
    "story",
    [
        _a_transaction_ends,
        _a_shard_with_an_open_transaction_is_loaded,
        _a_group_is_deleted,
        _a_topic_is_deleted,
        _offsets_expire,
    ],
)
def test_thousands_of_offsets_let_others_in(story: Callable[[BudgetFixture], Coroutine[Any, Any, None]]) -> None:
    assert longest_step(story, offsets_retention_ms=1000, expiry_check_interval_ms=5000) < CALLS_MAX
