"""Markers of decided transactions: sent again until acknowledged, to the leaders of the day, by topic id."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from transactions_fixture import ID, ONE, TWO, TransactionsFixture, reported
from virtual_time import run

from cordwood.cluster.transactions.markers import RETRY_MAX_S
from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.types import TopicPartition

S = TransactionState


@reported
async def test_markers_are_sent_again_until_they_are_acknowledged() -> None:
    transactions = TransactionsFixture()
    transactions.codes = {
        ONE: [ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas, ErrorCode.transaction_coordinator_fenced]
    }
    await transactions.init()
    await transactions.add(ONE, TWO)
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert [partitions for _, ((_, partitions),) in transactions.requests] == [{ONE, TWO}, {ONE}, {ONE}, {ONE}]
    assert sorted(transactions.markers()) == [(ONE, "commit", 0), (TWO, "commit", 0)]


@reported
async def test_a_broker_that_does_not_answer_delays_no_other() -> None:
    transactions = TransactionsFixture()
    transactions.leaders = {ONE: 5}
    transactions.unreachable = {5}
    await transactions.init()
    await transactions.init(transactional_id="other")
    other = transactions.producer
    await transactions.init()
    await transactions.add(ONE, TWO)
    await transactions.end("commit")
    await transactions.add(TWO, transactional_id="other", producer=other)
    await transactions.end("abort", transactional_id="other", producer=other)
    await transactions.until(lambda: transactions.state("other") is S.COMPLETE_ABORT)
    assert transactions.state() is S.PREPARE_COMMIT
    transactions.unreachable.clear()
    await transactions.until_state(S.COMPLETE_COMMIT)


@reported
async def test_markers_follow_their_partition_to_its_new_leader() -> None:
    transactions = TransactionsFixture()
    transactions.leaders = {ONE: 5}
    transactions.gate.clear()
    await transactions.init()
    await transactions.add(ONE)
    await transactions.end("commit")
    await asyncio.sleep(1)
    transactions.leaders = {ONE: 6}
    transactions.tell_all()
    await asyncio.sleep(1)
    assert [broker for broker, _ in transactions.requests] == [5, 6]
    transactions.gate.set()
    await transactions.until_state(S.COMPLETE_COMMIT)


@reported
async def test_a_refusal_after_a_success_is_repeated_soon() -> None:
    transactions, loop = TransactionsFixture(), asyncio.get_running_loop()
    await transactions.init()
    transactions.codes = {ONE: [ErrorCode.not_leader_or_follower] * 9}
    await transactions.add(ONE)
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    transactions.codes = {ONE: [ErrorCode.not_leader_or_follower]}
    await transactions.add(ONE)
    began = loop.time()
    await transactions.end("abort")
    await transactions.until_state(S.COMPLETE_ABORT)
    assert loop.time() - began < RETRY_MAX_S / 2, "the wait has begun anew"


@reported
async def test_markers_wait_for_a_leader() -> None:
    transactions = TransactionsFixture()
    transactions.leaders = {ONE: -1}
    await transactions.init()
    await transactions.add(ONE)
    await transactions.end("commit")
    await asyncio.sleep(100)
    assert not transactions.requests
    transactions.leaders = {}
    transactions.tell_all()
    await transactions.until_state(S.COMPLETE_COMMIT)


@pytest.mark.parametrize("created_again", [False, True])
def test_a_deleted_topic_needs_no_markers(created_again: bool) -> None:
    async def whole() -> None:
        transactions = TransactionsFixture()
        transactions.gate.clear()
        await transactions.init()
        await transactions.add(ONE, TopicPartition("planes", 0))
        await transactions.end("commit")
        await asyncio.sleep(1)
        transactions.delete_topic("flights", created_again=created_again)
        transactions.codes = {ONE: [ErrorCode.unknown_topic_or_partition] * 9}
        transactions.gate.set()
        await transactions.until_state(S.COMPLETE_COMMIT)
        assert transactions.markers() == [(TopicPartition("planes", 0), "commit", 0)]

    run(whole())


@reported
async def test_a_topic_that_is_created_again_does_not_get_the_markers_after_a_failover() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.delete_topic("flights", created_again=True)
    await transactions.restart()
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == []


@reported
async def test_a_topic_that_is_created_again_is_not_in_the_transaction_before_it_is_added() -> None:
    transactions = TransactionsFixture()
    producer = await transactions.init()
    await transactions.add(ONE, TWO)
    transactions.delete_topic("flights", created_again=True)

    def codes() -> dict[TopicPartition, ErrorCode]:
        return transactions.coordinator.verify_partitions(ID, producer, [ONE, TWO])

    assert codes() == dict.fromkeys((ONE, TWO), ErrorCode.transaction_abortable)
    await transactions.add(ONE)
    assert codes() == {ONE: ErrorCode.none, TWO: ErrorCode.transaction_abortable}
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == [(ONE, "commit", 0)]
