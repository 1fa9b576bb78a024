"""The transaction coordinator: durable decisions, their markers, timeouts, expiry, and failover."""

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST
from transactions_fixture import ID, ONE, TWO, TransactionsFixture
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.coordinator import COMPLETIONS_S, NAME_BYTES_MAX
from cordwood.cluster.transactions.formats import decode_key
from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

SECOND = FIRST + 1
S = TransactionState


def story(told: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    @wraps(told)
    def test() -> None:
        run(told())

    del test.__wrapped__  # type: ignore[attr-defined]
    return test


@story
async def test_a_transaction_is_committed_on_all_its_partitions() -> None:
    transactions = TransactionsFixture()
    assert await transactions.init() == (1, 0)
    await transactions.add(ONE)
    await transactions.add(TWO)
    assert await transactions.end("commit") == (1, 0)
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert sorted(transactions.markers()) == [(ONE, "commit", 0), (TWO, "commit", 0)]
    assert len(transactions.requests) == 1


@story
async def test_a_v2_transaction_is_aborted_with_the_raised_epoch() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, is_v2=True)
    assert await transactions.end("abort", v2=True) == (1, 1)
    await transactions.until_state(S.COMPLETE_ABORT)
    assert transactions.markers() == [(ONE, "abort", 1)]
    ((_, marker),) = transactions.written
    assert marker.is_v2


@story
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
    async def told() -> None:
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

    run(told())


@story
async def test_a_timeout_is_positive_and_has_a_limit() -> None:
    transactions = TransactionsFixture(max_timeout_ms=5000)
    for timeout_ms in (-1, 0, 5001):
        refused = await transactions.code_of(transactions.init(timeout_ms=timeout_ms))
        assert refused is ErrorCode.invalid_transaction_timeout
    assert await transactions.init(timeout_ms=5000) == (1, 0)


@story
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


@story
async def test_a_topic_that_does_not_exist_is_not_added() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    refused = await transactions.code_of(transactions.add(TopicPartition("trains", 0)))
    assert refused is ErrorCode.unknown_topic_or_partition


# Decisions.


@story
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


@story
async def test_the_end_is_answered_before_the_markers() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    assert transactions.state() is S.PREPARE_COMMIT
    assert await transactions.code_of(transactions.end("commit")) is ErrorCode.concurrent_transactions
    assert await transactions.code_of(transactions.end("abort")) is ErrorCode.invalid_txn_state


@story
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


@story
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


@story
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
    transactions.topic.refusal = None
    await asyncio.sleep(2 * COMPLETIONS_S)
    await transactions.restart()
    assert transactions.state() is S.COMPLETE_COMMIT
    assert len(transactions.written) == 1


@story
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


@story
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


@story
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


@story
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


@story
async def test_a_v1_request_that_was_delayed_on_an_older_connection_tears_nothing() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, connection=1)
    await transactions.end("commit", connection=2)
    await transactions.add(ONE, connection=2)
    assert await transactions.code_of(transactions.end("commit", connection=1)) is ErrorCode.invalid_txn_state
    assert transactions.state() is S.ONGOING


# Markers.


@story
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


@story
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


@story
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


@story
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
    async def told() -> None:
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

    run(told())


@story
async def test_a_topic_that_is_created_again_does_not_get_the_markers_after_a_failover() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.delete_topic("flights", created_again=True)
    await transactions.restart()
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == []


# Failover.


@story
async def test_the_next_coordinator_goes_on_with_the_transaction() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.elect(SECOND)
    await transactions.loaded()
    await transactions.add(TWO)
    await transactions.end("commit")
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert sorted(transactions.markers()) == [(ONE, "commit", 0), (TWO, "commit", 0)]


@story
async def test_the_next_coordinator_writes_the_markers_of_a_decision() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    transactions.elect(SECOND)
    transactions.gate.set()
    await transactions.loaded()
    await transactions.until_state(S.COMPLETE_COMMIT)
    epochs = {marker.coordinator_epoch for _, marker in transactions.written}
    assert max(epochs) == transactions.topic.partitions[transactions.partition].leader_epoch == 1
    assert {(partition, verb) for partition, verb, _ in transactions.markers()} == {(ONE, "commit")}


@story
async def test_a_decision_that_was_not_committed_is_not_answered() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(0)
    transactions.elect(SECOND, keeping=0)
    assert await transactions.code_of(end) is ErrorCode.not_coordinator
    transactions.topic.release()
    await transactions.loaded()
    assert transactions.state() is S.ONGOING
    assert not transactions.written


@story
async def test_a_deposed_coordinator_writes_nothing() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    await asyncio.sleep(1)
    transactions.elect(SECOND)
    transactions.leader = FIRST
    assert await transactions.code_of(transactions.end("commit")) is ErrorCode.not_coordinator
    transactions.gate.set()
    await asyncio.sleep(10)
    assert transactions.topic.appends_too_late == 0


@story
async def test_a_deposed_coordinator_sends_no_more_markers() -> None:
    transactions = TransactionsFixture(brokers=2)
    transactions.codes = {ONE: [ErrorCode.transaction_coordinator_fenced] * 10_000}
    await transactions.init()
    await transactions.add(ONE)
    await transactions.end("commit")
    await asyncio.sleep(10)
    transactions.elect(SECOND)
    await transactions.loaded()
    await asyncio.sleep(1)
    before = len(transactions.requests)
    await asyncio.sleep(10)
    epochs = {marker.coordinator_epoch for _, rows in transactions.requests[before:] for marker, _ in rows}
    assert epochs == {1}


@story
async def test_a_compaction_keeps_a_decision_that_is_being_written() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(0)
    store = transactions.coordinator._store
    (shard,) = (shard for shard in store.shards if shard.transactions)
    compaction = asyncio.ensure_future(store._compact(shard, transactions.topic.bounds(transactions.partition).end))
    await asyncio.sleep(0)
    transactions.gate.clear()
    transactions.topic.release()
    await asyncio.gather(end, compaction)
    assert transactions.topic.bounds(transactions.partition).start > 0
    await transactions.restart()
    assert transactions.state() is S.PREPARE_COMMIT


@story
async def test_waiting_requests_are_refused_when_another_broker_leads() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    add = asyncio.ensure_future(transactions.add(TWO))
    await asyncio.sleep(transactions.settings.completion_wait_s / 2)
    began = asyncio.get_running_loop().time()
    transactions.elect(SECOND)
    assert await transactions.code_of(add) is ErrorCode.not_coordinator
    assert asyncio.get_running_loop().time() == began


@story
async def test_a_repeated_request_is_known_to_the_next_coordinator() -> None:
    transactions = TransactionsFixture(brokers=2)
    first = await transactions.init()
    second = await transactions.init(expected=first)
    transactions.elect(SECOND)
    await transactions.loaded()
    assert await transactions.init(expected=first) == second
    await transactions.add(ONE, is_v2=True)
    third = await transactions.end("commit", v2=True)
    transactions.elect(FIRST)
    await transactions.loaded()
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert await transactions.end("commit", v2=True, producer=second) == third


# Time.


@story
async def test_a_transaction_that_exceeds_its_timeout_is_aborted() -> None:
    transactions = TransactionsFixture(sweep_interval_ms=1000)
    await transactions.init()
    await transactions.add(ONE)
    producer = transactions.producer
    began = asyncio.get_running_loop().time()
    await transactions.until_state(S.COMPLETE_ABORT)
    assert 60 <= asyncio.get_running_loop().time() - began <= 62
    assert transactions.markers() == [(ONE, "abort", 1)]
    for work in (
        transactions.add(TWO),
        transactions.end("commit"),
        transactions.end("abort"),
        transactions.init(producer),
    ):
        assert await transactions.code_of(work) is ErrorCode.producer_fenced
    assert await transactions.init() == (1, 2)


@story
async def test_the_timeout_runs_on_through_a_failover() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(40)
    transactions.elect(SECOND)
    await transactions.loaded()
    await transactions.until_state(S.COMPLETE_ABORT)
    assert asyncio.get_running_loop().time() - began < 65


@story
async def test_the_timeout_leaves_a_transition_alone_that_is_being_written() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(200)
    transactions.topic.release()
    await end
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert transactions.markers() == [(ONE, "commit", 0)]


@story
async def test_many_timeouts_share_writes() -> None:
    transactions = TransactionsFixture()
    names = [f"pay-{number}" for number in range(200)]
    for name in names:
        await transactions.init(transactional_id=name)
        await transactions.add(ONE, transactional_id=name)
    before = transactions.topic.appends
    await transactions.until(lambda: all(transactions.state(name) is S.COMPLETE_ABORT for name in names))
    assert transactions.topic.appends - before < 200 + 200 / 10


@story
async def test_an_id_without_a_transaction_expires() -> None:
    transactions = TransactionsFixture(id_expiration_ms=100_000, sweep_interval_ms=1000, max_timeout_ms=10_000_000)
    await transactions.init(transactional_id="idle")
    await transactions.init(timeout_ms=10_000_000)
    await transactions.add(ONE)
    listed = {row.transactional_id for row in transactions.coordinator.list()}
    assert listed == {"idle", ID}
    await asyncio.sleep(102)
    assert [row.transactional_id for row in transactions.coordinator.list()] == [ID]
    for index in range(4):
        records = transactions.topic.records(index)
        for record in records:
            if decode_key(record.key or b"") == "idle":
                assert record is records[-1] or record.value is not None
    await transactions.restart()
    assert [row.transactional_id for row in transactions.coordinator.list()] == [ID]


# Views.


@story
async def test_transactions_are_listed_by_state_producer_age_and_name() -> None:
    transactions = TransactionsFixture()
    for name in ("pay-1", "pay-2", "ship-1"):
        await transactions.init(transactional_id=name)
        await transactions.add(ONE, transactional_id=name)
        await asyncio.sleep(1)
    await transactions.end("commit", transactional_id="ship-1")
    await transactions.until(lambda: transactions.state("ship-1") is S.COMPLETE_COMMIT)

    def listed(**filters: Any) -> list[str]:
        return sorted(row.transactional_id for row in transactions.coordinator.list(**filters))

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


@story
async def test_a_description_has_the_transaction() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    assert transactions.coordinator.describe(ID).start_ms == -1
    await transactions.add(ONE, TWO)
    described = transactions.coordinator.describe(ID)
    assert described == (ID, S.ONGOING, (1, 0), 60_000, transactions.wall_clock(), (ONE, TWO))


@story
async def test_while_it_loads_nothing_is_listed() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.coordinator.close()
    transactions.open()
    with pytest.raises(Refused) as refused:
        transactions.coordinator.list()
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    await transactions.loaded()
    assert [row.transactional_id for row in transactions.coordinator.list()] == [ID]


@story
async def test_an_open_transaction_takes_little_memory() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    count = 500
    logs = transactions.topic.partitions
    tracemalloc.start()
    try:
        for number in range(count):
            name = f"transactional-id-of-{number:08d}"
            await transactions.init(transactional_id=name)
            await transactions.add(TopicPartition("flights", number % 50), transactional_id=name)
        for log in logs:
            log.batches.clear()
        assert tracemalloc.get_traced_memory()[0] / count < 600
    finally:
        tracemalloc.stop()
    assert len(asyncio.all_tasks()) < 5
