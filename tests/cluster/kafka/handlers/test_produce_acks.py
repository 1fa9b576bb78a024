"""Produce by raw frames: the acknowledgement for acks=0, 1 and all, and the cases without one."""

import asyncio

import pytest
from handlers_fixture import HandlersStory, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from produce_requests import ALL, LEADER_ONLY, NONE, Row, batch, produce, rows, send, sent
from replica_fixture import ME

from cordwood.storage.config import FlushPolicy, LogConfig


def test_acks_all_waits_for_every_in_sync_replica() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME, FOLLOWER), min_isr=2)
        broker.follow()
        answer = send(broker, batch(), acks=ALL)
        await broker.turn()
        broker.report(1)
        await broker.turn()
        assert not answer.done(), "the leader has not flushed it"
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.none, 0)]
        answer = send(broker, batch(), acks=ALL)
        await broker.sync()
        assert not answer.done(), "the follower has not flushed it"
        broker.report(2)
        await broker.turn()
        assert rows(answer.result()) == [Row(ErrorCode.none, 1)]

    tell(story)


def test_acks_1_waits_for_the_leaders_own_flush_alone() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME, FOLLOWER), min_isr=2)
        answer = send(broker, batch(), acks=LEADER_ONLY)
        await broker.turn()
        assert broker.syncer.groups, "it is to be flushed"
        assert not answer.done()
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.none, 0)]

    tell(story)


def test_a_flush_that_began_before_a_batch_does_not_acknowledge_it() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        first = send(broker, batch(), acks=LEADER_ONLY)
        await broker.turn()
        second = send(broker, batch(), acks=LEADER_ONLY)
        await broker.turn()
        broker.syncer.let_go()
        await broker.turn()
        assert (first.done(), second.done()) == (True, False)
        await broker.sync()
        assert rows(second.result()) == [Row(ErrorCode.none, 1)]

    tell(story)


@pytest.mark.parametrize("acks", [ALL, LEADER_ONLY])
def test_with_flush_policy_os_no_produce_waits_for_the_disk(acks: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, batch(), acks=acks)
        await broker.turn()
        assert rows(answer.result()) == [Row(ErrorCode.none, 0)]

    tell(story, LogConfig(flush_policy=FlushPolicy.OS))


def test_acks_0_is_answered_by_nothing() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        unanswered = send(broker, batch(), acks=NONE)
        answered = send(broker, batch(), acks=LEADER_ONLY)
        await broker.sync()
        assert (unanswered.done(), partition.log.log_end) == (False, 2)
        assert rows(answered.result()) == [Row(ErrorCode.none, 1)]

    tell(story)


@pytest.mark.parametrize("acks", [ALL, LEADER_ONLY])
def test_a_repeated_batch_is_acknowledged_where_it_stands_and_not_before_it_is_safe(acks: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        answers = [send(broker, sent(0, count=2), acks=acks) for _ in range(3)]
        await broker.turn()
        assert not any(answer.done() for answer in answers)
        await broker.sync()
        assert [rows(answer.result()) for answer in answers] == [[Row(ErrorCode.none, 0)]] * 3
        assert partition.log.log_end == 2

    tell(story)


@pytest.mark.parametrize("acks", [LEADER_ONLY, NONE])
def test_min_insync_replicas_is_for_acks_all(acks: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME,), min_isr=2)
        answer = send(broker, batch(), acks=acks)
        await broker.sync()
        assert partition.log.log_end == 1
        assert acks == NONE or rows(answer.result()) == [Row(ErrorCode.none, 0)]
        assert (await produce(broker, batch(), acks=ALL)).code is ErrorCode.not_enough_replicas
        assert partition.log.log_end == 1

    tell(story)


@pytest.mark.parametrize("acks", [ALL, LEADER_ONLY])
def test_who_waits_is_refused_when_his_time_is_over(acks: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        answer = send(broker, batch(), acks=acks, timeout_ms=500)
        await broker.turn()
        now = asyncio.get_running_loop().time()
        partition.leader.expire_waiters(now + 0.4)
        await broker.turn()
        assert not answer.done()
        partition.leader.expire_waiters(now + 0.5)
        await broker.turn()
        assert rows(answer.result()) == [Row(ErrorCode.request_timed_out, -1)]

    tell(story)


@pytest.mark.parametrize("acks", [ALL, LEADER_ONLY])
def test_a_deposed_leader_acknowledges_nothing(acks: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, batch(), acks=acks)
        await broker.turn()
        broker.begin_to_follow(epoch=2)
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.not_leader_or_follower, -1)]

    tell(story)


def test_a_waiter_of_a_topic_that_is_deleted_gets_an_error() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, batch())
        await broker.turn()
        for partition in broker.replicas.remove("t"):
            broker.replicas.forget(partition)
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.unknown_topic_or_partition, -1)]

    tell(story)
