"""Produce in transactions by raw frames: verification of the first append, order, and every reason for a refusal."""

import asyncio
from typing import Any

import pytest
from handlers_fixture import HandlersStory, milliseconds, tell
from kio.schema.errors import ErrorCode
from produce_requests import ALL, NONE, TIMEOUT_MS, Row, in_transaction, rows, send, sent
from raw_batches import zero_deltas
from replica_fixture import ME, NOW_MS, TOPIC_ID
from scripted_transactions import OTHER

from cordwood.cluster.kafka.handlers import produce as handler
from cordwood.storage.batch import TRANSACTIONAL, headers
from cordwood.storage.config import LogConfig
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

PRODUCER = ProducerIdAndEpoch(7, 0)
ID = "x"
ABORTABLE_FROM, ADDS_FROM = 11, 12


async def produce(broker: HandlersStory, *batches: bytes, transactional_id: str | None = ID, **options: Any) -> Row:
    """Produce batches of a transaction, and return the last outcome."""
    answer = send(broker, *batches, transactional_id=transactional_id, **options)
    await broker.sync()
    assert answer.done(), "it is answered"
    return rows(answer.result())[-1]


def end(broker: HandlersStory, producer: ProducerIdAndEpoch = PRODUCER, *, is_v2: bool = False) -> None:
    """Commit the producer's transaction on partition 0."""
    broker.held().leader.append_marker(producer, EndTransactionMarker(True, 0), NOW_MS, is_v2=is_v2)


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize("version", handler.KEY.versions)
def test_the_first_append_of_each_transaction_is_verified(version: int, leader: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = leader
        partition = broker.elect()
        for sequence in range(3):
            assert await produce(broker, in_transaction(sequence), version=version) == Row(ErrorCode.none, sequence)
        (asked,) = broker.transactions.asked
        assert asked == (ID, PRODUCER, (TopicPartition("t", 0),), version >= ADDS_FROM)
        end(broker, PRODUCER if version < ADDS_FROM else ProducerIdAndEpoch(7, 1), is_v2=version >= ADDS_FROM)
        epoch, sequence = (1, 0) if version >= ADDS_FROM else (0, 3)
        assert (await produce(broker, in_transaction(sequence, epoch=epoch), version=version)).code is ErrorCode.none
        assert len(broker.transactions.asked) == 2
        stored = headers(partition.log.read(0, 1 << 20, partition.log.log_end))
        assert [header.is_transactional for header in stored] == [True] * 5
        assert [header.is_control for header in stored] == [False] * 3 + [True, False]

    tell(story)


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize("version", handler.KEY.versions)
@pytest.mark.parametrize(
    ("given", "expected", "from_adding_on"),
    [
        (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, None),
        (ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_epoch, None),
        (ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping, None),
        (ErrorCode.invalid_txn_state, ErrorCode.invalid_txn_state, None),
        (ErrorCode.not_coordinator, ErrorCode.not_enough_replicas, None),
        (ErrorCode.coordinator_not_available, ErrorCode.not_enough_replicas, None),
        (ErrorCode.coordinator_load_in_progress, ErrorCode.not_enough_replicas, None),
        (ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas, ErrorCode.concurrent_transactions),
    ],
)
def test_what_the_coordinator_refuses_is_refused_by_a_code_that_the_client_knows(
    version: int, leader: int, given: ErrorCode, expected: ErrorCode, from_adding_on: ErrorCode | None
) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader, broker.transactions.code = leader, given
        partition = broker.elect()
        (row,) = rows(await send(broker, in_transaction(0), transactional_id=ID, version=version))
        code = (from_adding_on or expected) if version >= ADDS_FROM else expected
        assert row == Row(code, -1)
        assert partition.log.log_end == 0

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_a_partition_that_is_not_in_the_transaction_aborts_it(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.codes = {TopicPartition("t", 0): ErrorCode.transaction_abortable}
        broker.elect()
        if version < ADDS_FROM:
            code = ErrorCode.transaction_abortable if version >= ABORTABLE_FROM else ErrorCode.invalid_txn_state
            assert await produce(broker, in_transaction(0), version=version) == Row(code, -1)

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_a_client_writes_no_markers(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        marker = encode_marker(PRODUCER, EndTransactionMarker(True, 0), NOW_MS)
        assert await produce(broker, marker, version=version) == Row(ErrorCode.invalid_record, -1)
        assert await produce(broker, in_transaction(0), version=version) == Row(ErrorCode.none, 0)
        assert await produce(broker, marker, version=version) == Row(ErrorCode.invalid_record, -1)
        assert partition.last_stable_offset == 0

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_in_the_second_protocol_each_transaction_begins_at_sequence_0(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        code = ErrorCode.out_of_order_sequence_number if version >= ADDS_FROM else ErrorCode.none
        assert (await produce(broker, in_transaction(2), version=version)).code is code

    tell(story)


def test_an_answer_that_is_lost_has_the_producer_send_again() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader, broker.transactions.is_lost = OTHER, True
        broker.elect()
        assert await produce(broker, in_transaction(0)) == Row(ErrorCode.not_enough_replicas, -1)
        broker.transactions.is_lost = False
        assert await produce(broker, in_transaction(0)) == Row(ErrorCode.none, 0)

    tell(story)


@pytest.mark.parametrize("version", [9, 11, 13])
def test_a_transactional_batch_needs_the_transactional_id_of_its_request(version: int) -> None:
    refused = Row(ErrorCode.transactional_id_authorization_failed, -1)

    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        assert await produce(broker, in_transaction(0), transactional_id=None, version=version) == refused
        assert (await produce(broker, in_transaction(0), version=version)).code is ErrorCode.none
        for batches in ((in_transaction(1),), (sent(0, producer=8), in_transaction(1))):
            assert await produce(broker, *batches, transactional_id=None, version=version) == refused
        assert partition.log.log_end == 2, "the batch of producer 8"

    tell(story)


def test_a_request_has_the_batches_of_one_producer_id() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        answer = send(broker, in_transaction(0), in_transaction(0, producer=8), transactional_id=ID)
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.invalid_producer_id_mapping, -1)] * 2
        assert broker.transactions.asked == []
        assert partition.log.log_end == 0

    tell(story)


def test_a_batch_outside_the_transaction_is_let_in_before_it_and_refused_within_it() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        assert await produce(broker, sent(0)) == Row(ErrorCode.none, 0)
        assert broker.transactions.asked == []
        assert await produce(broker, in_transaction(1)) == Row(ErrorCode.none, 1)
        assert (await produce(broker, sent(2))).code is ErrorCode.invalid_txn_state
        assert (await produce(broker, sent(2), transactional_id=None)).code is ErrorCode.invalid_txn_state

    tell(story)


def test_what_a_client_sends_during_the_verification_stays_in_order() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        broker.transactions.gate.clear()
        broker.elect()
        answers = [send(broker, in_transaction(sequence), transactional_id=ID) for sequence in range(4)]
        answers.append(send(broker, sent(0, producer=9)))
        await broker.sync()
        assert not any(answer.done() for answer in answers)
        broker.transactions.gate.set()
        await broker.sync()
        assert [rows(answer.result()) for answer in answers] == [[Row(ErrorCode.none, offset)] for offset in range(5)]
        assert len(broker.transactions.asked) == 1

    tell(story)


def test_another_client_does_not_wait_for_the_verification() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        broker.transactions.gate.clear()
        broker.elect()
        waiting = send(broker, in_transaction(0), transactional_id=ID)
        await broker.sync()
        other = broker.connect()
        data = ({"topic_id": TOPIC_ID, "partition_data": ({"index": 0, "records": sent(0, producer=9)},)},)
        answer = other.send(handler.KEY, 13, acks=ALL, timeout=milliseconds(TIMEOUT_MS), topic_data=data)
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.none, 0)]
        broker.transactions.gate.set()
        await broker.sync()
        assert rows(waiting.result()) == [Row(ErrorCode.none, 1)]

    tell(story)


def test_later_batches_wait_for_the_first_one_that_was_refused() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.transactions.code = ErrorCode.coordinator_load_in_progress
        assert (await produce(broker, in_transaction(0))).code is ErrorCode.not_enough_replicas
        broker.transactions.code = ErrorCode.none
        assert (await produce(broker, in_transaction(1))).code is ErrorCode.not_enough_replicas
        assert await produce(broker, in_transaction(0)) == Row(ErrorCode.none, 0)
        assert await produce(broker, in_transaction(1)) == Row(ErrorCode.none, 1)

    tell(story)


def test_later_batches_do_not_wait_for_one_that_does_not_come_again() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        broker.transactions.code = ErrorCode.invalid_txn_state
        assert (await produce(broker, in_transaction(0), version=10)).code is ErrorCode.invalid_txn_state
        assert len(partition.leader.verifications) == 0
        broker.transactions.code = ErrorCode.none
        assert await produce(broker, in_transaction(1), version=10) == Row(ErrorCode.none, 0)

    tell(story)


def test_an_answer_about_a_transaction_that_has_ended_does_not_count_for_the_next() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        partition = broker.elect()
        assert await produce(broker, in_transaction(0), version=10) == Row(ErrorCode.none, 0)
        end(broker)
        broker.transactions.gate.clear()
        waiting = send(broker, in_transaction(1), transactional_id=ID, version=10)
        await broker.sync()
        end(broker)
        broker.transactions.gate.set()
        await broker.sync()
        assert rows(waiting.result()) == [Row(ErrorCode.invalid_txn_state, -1)]
        assert partition.log.log_end == 3

    tell(story)


def test_a_leader_that_was_deposed_during_the_verification_appends_nothing() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        broker.transactions.gate.clear()
        partition = broker.elect()
        answers = [send(broker, in_transaction(0), transactional_id=ID)]
        await broker.sync()
        broker.elect(epoch=2, leader=OTHER)
        broker.elect(epoch=3)
        broker.transactions.gate.set()
        await broker.sync()
        assert rows(answers[0].result()) == [Row(ErrorCode.not_leader_or_follower, -1)]
        assert partition.log.log_end == 0

    tell(story)


def test_of_several_partitions_each_is_refused_for_itself() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in range(4):
            broker.elect(index)
        broker.elect(2, epoch=2, leader=OTHER)
        broker.transactions.codes = {TopicPartition("t", 1): ErrorCode.invalid_txn_state}
        data = tuple({"index": index, "records": in_transaction(0)} for index in range(5))
        topics = ({"name": "t", "partition_data": data},)
        fields: dict[str, Any] = {"acks": ALL, "timeout": milliseconds(TIMEOUT_MS), "topic_data": topics}
        answer = broker.client.send(handler.KEY, 12, transactional_id=ID, **fields)
        await broker.sync()
        assert rows(answer.result()) == [
            Row(ErrorCode.none, 0),
            Row(ErrorCode.none, 0),
            Row(ErrorCode.not_leader_or_follower, -1),
            Row(ErrorCode.none, 0),
            Row(ErrorCode.unknown_topic_or_partition, -1),
        ]
        (asked,) = broker.transactions.asked
        assert set(asked.partitions) == {TopicPartition("t", index) for index in (0, 1, 3)}

    tell(story)


def test_a_fenced_producer_is_not_verified() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        assert (await produce(broker, in_transaction(0, epoch=2))).code is ErrorCode.none
        assert (await produce(broker, in_transaction(0, epoch=1))).code is ErrorCode.invalid_producer_epoch
        assert len(broker.transactions.asked) == 1

    tell(story)


def test_a_producer_that_is_fenced_while_its_successor_is_verified_has_the_code_of_that() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        broker.transactions.gate.clear()
        broker.elect()
        waiting = send(broker, in_transaction(0, epoch=2), transactional_id=ID)
        await broker.sync()
        client = broker.connect()
        data = ({"name": "t", "partition_data": ({"index": 0, "records": in_transaction(0, epoch=1)},)},)
        fields: dict[str, Any] = {"acks": ALL, "timeout": milliseconds(TIMEOUT_MS), "topic_data": data}
        fenced = client.send(handler.KEY, 10, transactional_id=ID, **fields)
        await broker.sync()
        assert rows(fenced.result()) == [Row(ErrorCode.invalid_producer_epoch, -1)]
        broker.transactions.gate.set()
        await broker.sync()
        assert rows(waiting.result()) == [Row(ErrorCode.none, 0)]

    tell(story)


def test_bytes_that_are_no_sound_batch_are_refused_and_not_verified() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        flipped = bytearray(in_transaction(0))
        flipped[-1] ^= 0xFF
        for records in (bytes(flipped), in_transaction(0)[:40], b""):
            assert (await produce(broker, records)).code is ErrorCode.corrupt_message
        assert broker.transactions.asked == []

    tell(story)


def test_a_batch_of_which_the_records_take_long_to_check_is_verified_first() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        records = [Record(0, NOW_MS, b"k", b"v" * (number % 50)) for number in range(20_000)]
        numbers = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        large = encode(records, attributes=TRANSACTIONAL, **numbers)
        assert await produce(broker, large) == Row(ErrorCode.none, 0)
        assert len(broker.transactions.asked) == 1
        bad = bytearray(zero_deltas(40))
        assert (await produce(broker, bytes(bad))).code is ErrorCode.invalid_record
        assert partition.log.log_end == 20_000

    tell(story, LogConfig(segment_bytes=64 << 20, batch_bytes_max=64 << 20))


def test_a_producer_without_acknowledgements_loses_its_connection_if_it_is_refused() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.transactions.code = ErrorCode.invalid_txn_state
        send(broker, in_transaction(0), transactional_id=ID, acks=NONE)
        await broker.sync()
        assert not broker.client.is_open

    tell(story)


def test_a_client_that_has_gone_during_the_verification_has_its_batch_appended() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.transactions.leader = OTHER
        broker.transactions.gate.clear()
        partition = broker.elect()
        send(broker, in_transaction(0), transactional_id=ID)
        await broker.sync()
        broker.client._channel.close()
        broker.transactions.gate.set()
        await broker.sync()
        assert partition.log.log_end == 1

    tell(story)


def test_concurrent_transactions_are_waited_out_by_the_broker() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        broker.transactions.code = ErrorCode.concurrent_transactions
        answer = send(broker, in_transaction(0), transactional_id=ID)
        await asyncio.sleep(0.01)
        broker.transactions.code = ErrorCode.none
        await asyncio.sleep(0.01)
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.none, 0)]

    tell(story)
