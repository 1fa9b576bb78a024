"""Replies of a group after a write that failed: none shows what is not in the log (group rule 2)."""

import asyncio
from dataclasses import replace

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat
from cordwood.cluster.groups.heartbeat import HeartbeatReply

ANNA = ConsumerHeartbeat("anna", 0, rebalance_timeout_ms=60_000, topics=frozenset({"flights"}), owned={})
BEN = replace(ANNA, member_id="ben")


async def with_anna() -> CoordinatorFixture:
    """Return a coordinator of a group with one member. Its log commits nothing until it is released."""
    groups = CoordinatorFixture(1, ConsumerGroupScenario({"flights": 6}).context)
    await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
    groups.topic.hold()
    return groups


async def begin(groups: CoordinatorFixture, request: ConsumerHeartbeat) -> "asyncio.Task[HeartbeatReply]":
    """Send a heartbeat, and wait until its records wait for their commit."""
    waiting = groups.topic.partitions[groups.partition].waiting
    count, sent = len(waiting), send(groups, request)
    await groups.until(lambda: len(waiting) > count)
    return sent


def send(groups: CoordinatorFixture, request: ConsumerHeartbeat) -> "asyncio.Task[HeartbeatReply]":
    return asyncio.ensure_future(groups.coordinator.consumers.heartbeat(GROUP, request))


async def code_of(sent: "asyncio.Task[HeartbeatReply]") -> ErrorCode:
    try:
        return (await sent).code
    except Refused as refusal:
        return refusal.code


def test_no_reply_overtakes_an_earlier_write_that_fails() -> None:
    async def story() -> None:
        groups = await with_anna()
        ben = await begin(groups, BEN)
        anna = await begin(groups, replace(ANNA, member_epoch=1, owned={}))
        groups.topic.fail_oldest(groups.partition)
        groups.topic.release()
        assert await code_of(ben) is not ErrorCode.none
        assert await code_of(anna) is not ErrorCode.none, "it would show an epoch that is not in the log"

    run(story())


def test_replies_go_on_once_the_records_are_written() -> None:
    async def story() -> None:
        groups = await with_anna()
        ben = await begin(groups, BEN)
        anna = await begin(groups, replace(ANNA, member_epoch=1, owned={}))
        groups.topic.fail_oldest(groups.partition)
        groups.topic.release()
        await asyncio.wait([ben, anna])
        again = await groups.coordinator.consumers.heartbeat(GROUP, replace(ANNA, member_epoch=1, owned={}))
        assert (again.code, again.member_epoch) == (ErrorCode.none, 2)
        await groups.restart()
        assert groups.coordinator.consumers.group(GROUP).group_epoch == 2
        assert set(groups.group_size()) == {"anna", "ben"}

    run(story())


def test_a_busy_group_is_not_refused_for_ever_after_a_write_that_failed() -> None:
    async def story() -> None:
        groups = await with_anna()
        ben = await begin(groups, BEN)
        before = await begin(groups, replace(ANNA, member_epoch=1, owned={}))
        groups.topic.fail_oldest(groups.partition)
        await asyncio.wait([ben])
        # It begins while an earlier write is still on its way, and has the records that were lacking.
        after = await begin(groups, replace(ANNA, member_epoch=1, owned={}))
        groups.topic.release()
        assert await code_of(before) is not ErrorCode.none
        assert await code_of(after) is ErrorCode.none

    run(story())


@pytest.mark.parametrize("failures", [1, 3])
def test_a_refused_write_is_tried_again(failures: int) -> None:
    async def story() -> None:
        groups = await with_anna()
        groups.topic.release()
        for _ in range(failures):
            groups.topic.refusal = ErrorCode.coordinator_not_available
            assert await code_of(send(groups, BEN)) is ErrorCode.coordinator_not_available
        groups.topic.refusal = None
        await asyncio.sleep(2)
        await groups.restart()
        assert set(groups.group_size()) == {"anna", "ben"}

    run(story())
