"""The event-loop budget of groups: no event of a large group, or of many offsets, holds the loop for long (ADR 25)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from coordinator_fixture import GROUP, PRODUCER, CoordinatorFixture
from loop_steps import LongestStep

from cordwood.chaos.sim.loop import Process, run
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.storage.types import TopicPartition

OFFSETS, OFFSETS_PER_REQUEST = 6_000, 500
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

    async def _verify(self, _place: TopicPartition) -> None: ...


def longest_step(story: Callable[[BudgetFixture], Coroutine[Any, Any, None]], **settings: int) -> int:
    """Return the calls of the broker's longest step."""

    async def told() -> None:
        fixture = await asyncio.get_running_loop().create_task(_made(settings), context=Process("broker-1").context())
        flushing = asyncio.ensure_future(fixture.flush())
        await story(fixture)
        flushing.cancel()

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
