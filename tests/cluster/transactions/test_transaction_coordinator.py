"""The transaction coordinator: its requests, its durable decisions, and what it shows."""

import asyncio
import tracemalloc
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from transactions_fixture import ID, ONE, TWO, TransactionsFixture, reported
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.coordinator import COMPLETIONS_S, NAME_BYTES_MAX
from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

S = TransactionState


@reported
async def test_a_transaction_is_committed_on_all_its_partitions() -> None:
    transactions = TransactionsFixture()
    assert await transactions.init() == (1, 0)
    await transactions.add(ONE)
    await transactions.add(TWO)
    assert await transactions.end("commit") == (1, 0)
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert sorted(transactions.markers()) == [(ONE, "commit", 0), (TWO, "commit", 0)]
    assert len(transactions.requests) == 1


@reported
async def test_a_v2_transaction_is_aborted_with_the_raised_epoch() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, is_v2=True)
    assert await transactions.end("abort", v2=True) == (1, 1)
    await transactions.until_state(S.COMPLETE_ABORT)
    assert transactions.markers() == [(ONE, "abort", 1)]
    ((_, marker),) = transactions.written
    assert marker.is_v2


@reported
async def test_one_transition_is_one_durable_write() -> None:
    transactions = TransactionsFixture()
    for work in (
        transactions.init,
        lambda: transactions.add(ONE, TWO),
    ):
        before = transactions.topic.appends
        await work()
        assert transactions.topic.appends == before + 1
    await transactions.add(TWO)
    assert transactions.topic.appends == 2
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.topic.appends == 3
    await asyncio.sleep(2 * COMPLETIONS_S)
    assert transactions.topic.appends == 4


@pytest.mark.parametrize("transactional_id", ["", "x" * (NAME_BYTES_MAX + 1)])
def test_an_id_that_cannot_be_stored_is_refused(transactional_id: str) -> None:
    async def whole() -> None:
        transactions = TransactionsFixture()
        assert (
            await transactions.code_of(transactions.init(transactional_id=transactional_id))
            is ErrorCode.invalid_request
        )
        add = transactions.add(transactional_id=transactional_id)
        assert await transactions.code_of(add) is ErrorCode.invalid_request
        with pytest.raises(Refused) as refused:
            transactions.coordinator.describe(transactional_id)
        assert refused.value.code is ErrorCode.invalid_request

    run(whole())


@reported
async def test_a_timeout_is_positive_and_has_a_limit() -> None:
    transactions = TransactionsFixture(max_timeout_ms=5000)
    for timeout_ms in (-1, 0, 5001):
        refused = await transactions.code_of(transactions.init(timeout_ms=timeout_ms))
        assert refused is ErrorCode.invalid_transaction_timeout
    assert await transactions.init(timeout_ms=5000) == (1, 0)


@reported
async def test_an_unknown_id_has_no_producer() -> None:
    transactions = TransactionsFixture()
    someone = ProducerIdAndEpoch(1, 0)
    for _ in range(2):
        # First without the topic, then with it.
        mapping = ErrorCode.invalid_producer_id_mapping
        assert await transactions.code_of(transactions.add(producer=someone)) is mapping
        assert await transactions.code_of(transactions.end("commit", producer=someone)) is mapping
        with pytest.raises(Refused) as refused:
            transactions.coordinator.verify_partitions(ID, someone, [ONE])
        assert refused.value.code is mapping
        with pytest.raises(Refused) as refused:
            transactions.coordinator.describe(ID)
        assert refused.value.code is ErrorCode.transactional_id_not_found
        await transactions.coordinator.place(ID)


@reported
async def test_a_topic_that_does_not_exist_is_not_added() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    refused = await transactions.code_of(transactions.add(TopicPartition("trains", 0)))
    assert refused is ErrorCode.unknown_topic_or_partition


@reported
async def test_no_marker_is_written_before_the_decision_is_committed() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(10)
    assert not end.done()
    assert not transactions.requests
    transactions.topic.release()
    await end
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == [(ONE, "commit", 0)]


@reported
async def test_the_end_is_answered_before_the_markers() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    assert transactions.state() is S.PREPARE_COMMIT
    assert await transactions.code_of(transactions.end("commit")) is ErrorCode.concurrent_transactions
    assert await transactions.code_of(transactions.end("abort")) is ErrorCode.invalid_txn_state


@reported
async def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    began = asyncio.get_running_loop().time()
    assert await transactions.code_of(transactions.add(TWO)) is ErrorCode.concurrent_transactions
    assert asyncio.get_running_loop().time() - began == pytest.approx(transactions.settings.completion_wait_s)
    add = asyncio.ensure_future(transactions.add(TWO))
    await asyncio.sleep(transactions.settings.completion_wait_s / 2)
    began = asyncio.get_running_loop().time()
    transactions.gate.set()
    await add
    assert transactions.state() is S.ONGOING
    assert asyncio.get_running_loop().time() == began


@reported
async def test_a_completion_is_written_with_the_next_transaction() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    for _ in range(10):
        await transactions.add(ONE)
        await transactions.end("commit")
        await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.topic.appends == 1 + 2 * 10
    await transactions.restart()
    # The last completion is lost, and its marker written again.
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == [(ONE, "commit", 0)] * 11


@reported
async def test_a_completion_is_written_later_if_nothing_else_is() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    transactions.topic.refusal = ErrorCode.coordinator_not_available
    transactions.gate.set()
    await transactions.until_state(S.COMPLETE_COMMIT)
    await asyncio.sleep(30)
    assert await transactions.code_of(transactions.add(ONE)) is ErrorCode.coordinator_not_available
    transactions.topic.refusal, transactions.topic.accepts = None, 5
    await asyncio.sleep(4 * COMPLETIONS_S)
    assert transactions.topic.accepts == 4, "it is written once"
    await transactions.restart()
    assert transactions.state() is S.COMPLETE_COMMIT
    assert len(transactions.written) == 1


@reported
async def test_a_completion_is_not_written_after_the_next_transaction() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    transactions.topic.hold()
    add = asyncio.ensure_future(transactions.add(TWO))
    await asyncio.sleep(3 * COMPLETIONS_S)
    transactions.topic.release()
    await add
    await asyncio.sleep(3 * COMPLETIONS_S)
    await transactions.restart()
    assert transactions.coordinator.describe(ID).partitions == (TWO,)


@reported
async def test_a_transition_that_is_refused_changes_nothing() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    before = transactions.coordinator.describe(ID)
    transactions.topic.refusal = ErrorCode.coordinator_not_available
    for work in (transactions.add(TWO), transactions.end("commit"), transactions.init(), transactions.init()):
        assert await transactions.code_of(work) is ErrorCode.coordinator_not_available
        assert transactions.coordinator.describe(ID) == before
    transactions.topic.refusal = None
    # The fence that was not written is not repeated on top: epoch 1 fences, and the next producer gets 2.
    assert await transactions.code_of(transactions.init()) is ErrorCode.concurrent_transactions
    await transactions.until_state(S.COMPLETE_ABORT)
    assert await transactions.init() == (1, 2)


@reported
async def test_requests_during_a_write_are_concurrent() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    transactions.topic.hold()
    add = asyncio.ensure_future(transactions.add(ONE))
    await asyncio.sleep(0)
    for work in (transactions.init(), transactions.add(TWO), transactions.end("commit")):
        assert await transactions.code_of(work) is ErrorCode.concurrent_transactions
    transactions.topic.release()
    await add
    assert transactions.coordinator.describe(ID).partitions == (ONE,)


@reported
async def test_exhausted_epochs_take_another_producer_id() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    (shard,) = (shard for shard in transactions.coordinator._store.shards if shard.transactions)
    shard.transactions[ID] = shard.transactions[ID]._replace(epoch=32_766)
    producer = transactions.producer = ProducerIdAndEpoch(1, 32_766)
    await transactions.add(ONE, is_v2=True)
    assert await transactions.end("commit", v2=True) == (2, 0)
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert [marker.producer for _, marker in transactions.written] == [(1, 32_767)]
    assert await transactions.end("commit", v2=True, producer=producer) == (2, 0)


@reported
async def test_the_next_transaction_with_another_producer_id_waits_for_the_markers_too() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    (shard,) = (shard for shard in transactions.coordinator._store.shards if shard.transactions)
    shard.transactions[ID] = shard.transactions[ID]._replace(epoch=32_766)
    transactions.producer = ProducerIdAndEpoch(1, 32_766)
    transactions.gate.clear()
    await transactions.add(ONE, is_v2=True)
    assert await transactions.end("commit", v2=True) == (2, 0)
    assert await transactions.code_of(transactions.add(ONE, is_v2=True)) is ErrorCode.concurrent_transactions
    assert await transactions.code_of(transactions.end("abort", v2=True)) is ErrorCode.concurrent_transactions
    transactions.gate.set()
    await transactions.add(ONE, is_v2=True)
    assert transactions.coordinator.describe(ID).producer == (2, 0)


@reported
async def test_a_v1_request_that_was_delayed_on_an_older_connection_tears_nothing() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, connection=1)
    await transactions.end("commit", connection=2)
    await transactions.add(ONE, connection=2)
    assert await transactions.code_of(transactions.end("commit", connection=1)) is ErrorCode.invalid_txn_state
    assert transactions.state() is S.ONGOING


@reported
async def test_version_2_needs_no_connection() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, connection=9)
    assert await transactions.end("commit", v2=True, connection=4) == (1, 1)


@reported
async def test_transactions_are_listed_by_state_producer_age_and_name() -> None:
    transactions = TransactionsFixture()
    for name in ("pay-1", "pay-2", "ship-1"):
        await transactions.init(transactional_id=name)
        await transactions.add(ONE, transactional_id=name)
        await asyncio.sleep(1)
    await transactions.end("commit", transactional_id="ship-1")
    await transactions.until(lambda: transactions.state("ship-1") is S.COMPLETE_COMMIT)

    def listed(**filters: Any) -> list[str]:
        return sorted(row.transactional_id for row in transactions.coordinator.list(**filters) if row is not None)

    assert listed() == ["pay-1", "pay-2", "ship-1"]
    assert listed(states={S.ONGOING}) == ["pay-1", "pay-2"]
    assert listed(producer_ids={2, 3}) == ["pay-2", "ship-1"]
    assert listed(open_longer_than_ms=2500) == ["pay-1"]
    assert listed(open_longer_than_ms=0) == ["pay-1", "pay-2"]
    assert listed(pattern=".*-1") == ["pay-1", "ship-1"]
    assert listed(pattern="pay") == []
    for pattern in ("(", "x" * 1001, r"(\w)\1", "(((a{1000}){1000}){1000})"):
        with pytest.raises(Refused) as refused:
            listed(pattern=pattern)
        assert refused.value.code is ErrorCode.invalid_regular_expression


@reported
async def test_a_description_has_the_transaction() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    assert transactions.coordinator.describe(ID).start_ms == -1
    await transactions.add(ONE, TWO)
    described = transactions.coordinator.describe(ID)
    assert described == (ID, S.ONGOING, (1, 0), 60_000, transactions.wall_clock(), (ONE, TWO))


@reported
async def test_while_it_loads_nothing_is_listed() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.coordinator.close()
    transactions.open()
    with pytest.raises(Refused) as refused:
        transactions.coordinator.list()
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    await transactions.loaded()
    assert [row.transactional_id for row in transactions.coordinator.list() if row is not None] == [ID]


@reported
async def test_nothing_is_listed_while_a_partition_is_damaged() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    transactions.topic.damaged.update(range(transactions.topic.partition_count))
    await transactions.restart()
    with pytest.raises(Refused) as refused:
        transactions.coordinator.list()
    assert refused.value.code is ErrorCode.coordinator_not_available


@reported
async def test_an_open_transaction_takes_little_memory() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    count = 1000
    logs = transactions.topic.partitions
    tracemalloc.start()
    try:
        for number in range(count):
            name = f"transactional-id-of-{number:08d}"
            await transactions.init(transactional_id=name)
            await transactions.add(TopicPartition("flights", number % 50), transactional_id=name)
        for log in logs:
            log.batches.clear()
        assert tracemalloc.get_traced_memory()[0] / count < 650
    finally:
        tracemalloc.stop()
    assert len(asyncio.all_tasks()) < 5
