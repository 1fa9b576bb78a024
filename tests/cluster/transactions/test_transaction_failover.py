"""The next transaction coordinator: it goes on with what is committed, and the deposed one does nothing."""

import asyncio

from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST
from transactions_fixture import ID, ONE, SECOND, TWO, TransactionsFixture, reported

from cordwood.cluster.coordination.shard_store import LOAD_AGAIN_S
from cordwood.cluster.transactions.formats import encode_key
from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.records import Record, encode
from cordwood.storage.types import TopicPartition

S = TransactionState


@reported
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


@reported
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


@reported
async def test_a_coordinator_that_could_not_be_loaded_writes_its_markers_without_being_asked() -> None:
    """No request may come: the producer has its answer, and read_committed consumers wait for the markers."""
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    transactions.gate.clear()
    await transactions.end("commit")
    transactions.topic.read_refusal = ErrorCode.coordinator_not_available
    transactions.elect(SECOND)
    transactions.gate.set()
    await asyncio.sleep(2 * LOAD_AGAIN_S)
    transactions.written.clear()
    transactions.topic.read_refusal = None
    await asyncio.sleep(2 * LOAD_AGAIN_S)
    assert transactions.markers() == [(ONE, "commit", 0)]


@reported
async def test_a_decision_that_is_committed_as_its_coordinator_is_deposed_gets_its_markers_from_the_next_one() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(0.001)
    transactions.topic.release()
    transactions.elect(FIRST)
    await end
    await transactions.loaded()
    await transactions.until_state(S.COMPLETE_COMMIT)
    assert {marker.coordinator_epoch for _, marker in transactions.written} == {1}
    assert transactions.coordinator.measures.committed == 1


@reported
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


@reported
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


@reported
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


@reported
async def test_a_delayed_v1_request_is_refused_after_its_broker_has_loaded_the_id_again() -> None:
    for leaders in ((FIRST,), (SECOND, FIRST)):
        transactions = TransactionsFixture(brokers=2)
        await transactions.init()
        await transactions.add(ONE, connection=1)
        await transactions.end("commit", connection=2)
        await transactions.add(ONE, connection=2)
        for leader in leaders:
            transactions.elect(leader)
            await transactions.loaded()
        assert await transactions.code_of(transactions.end("commit", connection=1)) is ErrorCode.invalid_txn_state
        assert transactions.state() is S.ONGOING
        await transactions.end("commit", connection=2)
        await transactions.until_state(S.COMPLETE_COMMIT)


@reported
async def test_the_connection_of_a_v1_request_counts_although_its_coordinator_changed_before_the_answer() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, connection=1)
    await transactions.end("commit", connection=1)
    await transactions.until_state(S.COMPLETE_COMMIT)
    transactions.topic.hold()
    add = asyncio.ensure_future(transactions.add(ONE, connection=2))
    await asyncio.sleep(0)
    transactions.elect(FIRST, keeping=1)
    assert await transactions.code_of(add) is ErrorCode.not_coordinator
    transactions.topic.release()
    await transactions.loaded()
    assert transactions.state() is S.ONGOING
    assert await transactions.code_of(transactions.end("commit", connection=1)) is ErrorCode.invalid_txn_state


@reported
async def test_a_v1_producer_goes_on_after_its_broker_was_started_again_and_numbers_connections_from_one() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE, connection=9)
    await transactions.restart()
    await transactions.end("commit", connection=1)
    await transactions.until_state(S.COMPLETE_COMMIT)


@reported
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


@reported
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


@reported
async def test_records_of_kafka_name_partitions_of_deleted_topics() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    # Version 0, without topic ids: producer 1, epoch 0, 60 s, Ongoing, flights-0 and trains-0, times 0.
    topics = "".join(f"0007{name.encode().hex()}00000001" + "00000000" for name in ("flights", "trains_"))
    value = bytes.fromhex(f"0000{1:016x}0000{60_000:08x}0100000002{topics}{0:032x}")
    transactions.topics.clear()
    record = encode([Record(0, 0, encode_key(ID), value)])
    transactions.topic.partitions[transactions.partition].append(record)
    transactions.topic.release()
    await transactions.restart()
    assert transactions.coordinator.describe(ID).partitions == (ONE, TopicPartition("trains_", 0))
    await transactions.until_state(S.COMPLETE_ABORT)
    assert transactions.markers() == []
