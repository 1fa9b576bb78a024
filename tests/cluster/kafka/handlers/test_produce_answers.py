"""Produce by raw frames: accepted batches, and every reason for a refusal."""

import asyncio
import struct
from uuid import UUID

import pytest
from handlers_fixture import HandlersStory, Provocations, milliseconds, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from produce_requests import ALL, LEADER_ONLY, TIMEOUT_MS, Row, batch, in_transaction, produce, rows, send, sent
from raw_batches import raw_batch
from replica_fixture import ME, NOW_MS, TOPIC_ID

from cordwood.cluster.kafka.handlers import produce as handler
from cordwood.cluster.kafka.leader_hints import Leader
from cordwood.cluster.kafka.produce_response import NAMED_RECORDS_MAX
from cordwood.cluster.metadata.commands import BrokerId, Endpoint
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS
from cordwood.storage.batch import CONTROL, Compression, headers
from cordwood.storage.budget import RECORDS_MAX
from cordwood.storage.compaction.keys import NAMED_MAX
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, encode

NAMED = 12
"""The last version with topic names instead of topic ids."""
MAX_BYTES = 1000
SEQUENCE_MAX = 0x7FFFFFFF
HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_every_version_gets_the_offset_of_its_batch(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        assert await produce(broker, batch(count=3), version=version) == Row(ErrorCode.none, 0)
        partition.leader.delete_records(2)
        answer = send(broker, batch(), version=version)
        await broker.sync()
        (row,) = answer.result().responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 3)
        assert getattr(row, "log_start_offset", 2) == 2
        assert row.log_append_time is None
        stored = headers(partition.log.read(2, 1 << 20, 4))
        assert [(each.base_offset, each.leader_epoch) for each in stored] == [(0, 1), (3, 1)]

    tell(story)


def test_sequences_wrap_to_zero() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        assert await produce(broker, sent(SEQUENCE_MAX - 1, count=2)) == Row(ErrorCode.none, 0)
        assert await produce(broker, sent(0)) == Row(ErrorCode.none, 2)
        assert await produce(broker, sent(SEQUENCE_MAX - 1, count=2)) == Row(ErrorCode.none, 0)

    tell(story)


@pytest.mark.parametrize(
    ("after", "next_one", "code"),
    [
        pytest.param(sent(0, count=2), sent(3), ErrorCode.out_of_order_sequence_number, id="a gap of one"),
        pytest.param(sent(0, count=2), sent(1), ErrorCode.out_of_order_sequence_number, id="an overlap"),
        pytest.param(sent(0, count=2), sent(0), ErrorCode.out_of_order_sequence_number, id="a part of a repeat"),
        pytest.param(sent(0), sent(1, epoch=1), ErrorCode.out_of_order_sequence_number, id="a new epoch not at 0"),
        pytest.param(sent(0), sent(0, epoch=1), ErrorCode.none, id="a new epoch"),
        pytest.param(sent(0, epoch=1), sent(0, epoch=0), ErrorCode.invalid_producer_epoch, id="an old epoch"),
        pytest.param(sent(0), sent(5, producer=8), ErrorCode.none, id="an unknown producer"),
    ],
)
def test_a_producers_batches_follow_on(after: bytes, next_one: bytes, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        await produce(broker, after)
        end = partition.log.log_end
        row = await produce(broker, next_one)
        assert row == Row(code, -1 if code else end)
        assert partition.log.log_end == end + (not code)

    tell(story)


def test_what_follows_a_refused_batch_is_refused_until_that_one_has_come_again() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect(isr=(ME,), min_isr=2)
        assert (await produce(broker, sent(0))).code is ErrorCode.not_enough_replicas
        broker.elect(epoch=2)
        assert (await produce(broker, sent(1))).code is ErrorCode.not_enough_replicas
        assert await produce(broker, sent(0)) == Row(ErrorCode.none, 0)
        assert await produce(broker, sent(1)) == Row(ErrorCode.none, 1)

    tell(story)


def with_bytes(records: bytes, place: int, *new: int) -> bytes:
    changed = bytearray(records)
    changed[place : place + len(new)] = bytes(new)
    return bytes(changed)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(None, id="null"),
        pytest.param(b"", id="nothing"),
        pytest.param(batch()[:60], id="less than a header"),
        pytest.param(batch()[:-1], id="a batch without its last byte"),
        pytest.param(with_bytes(batch(), len(batch()) - 1, 0xFF), id="a flipped byte in the last record"),
        pytest.param(with_bytes(batch(), 17, 0, 0, 0, 0), id="another checksum"),
        pytest.param(with_bytes(batch(), 21, 0x00, 0x08), id="a flipped attribute"),
        pytest.param(with_bytes(batch(), 16, 1), id="magic 1"),
        pytest.param(with_bytes(batch(), 16, 3), id="magic 3"),
        pytest.param(with_bytes(batch(), 8, *struct.pack(">i", -1)), id="a negative length"),
        pytest.param(with_bytes(batch(), 8, *struct.pack(">i", SEQUENCE_MAX)), id="an enormous length"),
    ],
)
def test_what_is_no_sound_batch_is_corrupt(records: bytes | None) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        assert await produce(broker, records) == Row(ErrorCode.corrupt_message, -1)
        assert partition.log.log_end == 0
        assert await produce(broker, batch()) == Row(ErrorCode.none, 0), "the next one is taken"

    tell(story)


@pytest.mark.parametrize(
    ("records", "config"),
    [
        pytest.param(batch() + batch(), LogConfig(), id="two batches"),
        pytest.param(batch() + b"\x00", LogConfig(), id="a byte more"),
        pytest.param(batch(attributes=CONTROL), LogConfig(), id="a control batch"),
        pytest.param(batch(producer_id=7), LogConfig(), id="a producer without an epoch"),
        pytest.param(batch(producer_id=7, producer_epoch=0), LogConfig(), id="a producer without a sequence number"),
        pytest.param(batch(producer_id=-2, producer_epoch=0, base_sequence=0), LogConfig(), id="a negative producer"),
        pytest.param(batch(attributes=5), LogConfig(), id="an unknown codec"),
        pytest.param(raw_batch(b"", 0), LogConfig(), id="no record"),
        pytest.param(raw_batch(batch()[61:], 2), LogConfig(), id="fewer records than it says"),
        pytest.param(batch(key=None), LogConfig(compacted=True), id="no key where the topic is compacted"),
    ],
)
def test_what_a_log_does_not_take_is_invalid(records: bytes, config: LogConfig) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        code = (await produce(broker, records)).code
        assert code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)
        assert (code is ErrorCode.corrupt_message) == (len(records) == 61), "a batch of no records is not even one"
        assert partition.log.log_end == 0

    tell(story, config)


@pytest.mark.parametrize("version", [version for version in handler.KEY.versions if version >= 8])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_each_record_without_a_key_is_named(version: int, compression: Compression) -> None:
    """KIP-467: a client learns which records its batch was refused for, and may send the others again."""
    lacking = [0, 3, 4, 99]
    records = [Record(0, NOW_MS, None if number in lacking else b"k", b"v" * number) for number in range(100)]

    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, encode(records, compression=compression), batch(key=b"k"), version=version)
        await broker.sync()
        refused, taken = answer.result().responses[0].partition_responses
        assert [record.batch_index for record in refused.record_errors] == lacking
        assert refused.error_message == "records of a compacted topic must have a key"
        assert (refused.error_code, refused.base_offset) == (ErrorCode.invalid_record, -1)
        assert (taken.error_code, taken.base_offset, taken.record_errors) == (ErrorCode.none, 0, ())

    tell(story, LogConfig(compacted=True))


def test_an_answer_names_a_bounded_number_of_records() -> None:
    lone = encode([Record(0, NOW_MS, None, None)] * (NAMED_MAX + 1), compression=Compression.ZSTD)

    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, *[lone] * 4)
        while not answer.done():
            await broker.sync()
        named = [len(row.record_errors) for row in answer.result().responses[0].partition_responses]
        assert named == [NAMED_MAX] * 2 + [0] * 2
        assert sum(named) == NAMED_RECORDS_MAX

    tell(story, LogConfig(compacted=True))


@pytest.mark.parametrize(("size", "code"), [(0, ErrorCode.none), (1, ErrorCode.message_too_large)])
def test_a_batch_has_max_message_bytes_at_the_most(size: int, code: ErrorCode) -> None:
    room = MAX_BYTES - len(batch(size=MAX_BYTES // 2)) + MAX_BYTES // 2

    async def story(broker: HandlersStory) -> None:
        broker.elect()
        records = batch(size=room + size)
        assert len(records) == MAX_BYTES + size
        assert (await produce(broker, records)).code is code

    tell(story, LogConfig(batch_bytes_max=MAX_BYTES))


@pytest.mark.parametrize(
    ("ahead_ms", "code"),
    [
        (HOUR_MS, ErrorCode.none),
        (HOUR_MS + 1, ErrorCode.invalid_timestamp),
        (-HOUR_MS, ErrorCode.none),
        (-HOUR_MS - 1, ErrorCode.invalid_timestamp),
    ],
)
def test_timestamps_are_as_near_to_the_brokers_clock_as_the_topic_says(ahead_ms: int, code: ErrorCode) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        assert (await produce(broker, batch(time_ms=NOW_MS + ahead_ms))).code is code

    tell(story, LogConfig(timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=HOUR_MS))


def test_with_log_append_time_the_broker_says_when() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        broker.now_ms = NOW_MS + 5
        answer = send(broker, batch(time_ms=NOW_MS - 10 * HOUR_MS))
        await broker.sync()
        (row,) = answer.result().responses[0].partition_responses
        assert row.log_append_time.timestamp() * 1000 == NOW_MS + 5
        (header,) = headers(partition.log.read(0, 1 << 20, 1))
        assert header.max_timestamp == NOW_MS + 5

    tell(story, LogConfig(log_append_time=True, timestamp_before_max_ms=HOUR_MS))


def test_one_batch_that_is_refused_leaves_the_others_of_its_request_alone() -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        answer = send(broker, batch(), batch(attributes=CONTROL), batch())
        await broker.sync()
        assert rows(answer.result()) == [
            Row(ErrorCode.none, 0),
            Row(ErrorCode.invalid_record, -1),
            Row(ErrorCode.none, 1),
        ]

    tell(story)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_a_refusal_names_the_leader_from_version_10_on(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.begin_to_follow(epoch=4)
        broker.leaders["t", 0] = Leader(BrokerId(3), 4, Endpoint("PLAINTEXT", "east", 9092), None)
        answer = send(broker, batch(), version=version)
        await broker.turn()
        response = answer.result()
        assert rows(response) == [Row(ErrorCode.not_leader_or_follower, -1)]
        nodes = [(node.node_id, node.host, node.port) for node in getattr(response, "node_endpoints", ())]
        assert nodes == ([(3, "east", 9092)] if version >= 10 else [])
        if version >= 10:
            hint = response.responses[0].partition_responses[0].current_leader
            assert (hint.leader_id, hint.leader_epoch) == (3, 4)

    tell(story)


@pytest.mark.parametrize("version", range(3))
def test_versions_that_are_only_advertised_are_refused(version: int) -> None:
    """librdkafka compresses only for a broker that advertises these versions, though it never uses them."""
    partition = struct.pack(">ii", 0, len(batch())) + batch()
    body = struct.pack(">hiih", ALL, TIMEOUT_MS, 1, 1) + b"t" + struct.pack(">i", 1) + partition

    async def story(broker: HandlersStory) -> None:
        held = broker.elect()
        head = struct.pack(">hhih", handler.KEY, version, 1, -1)
        frame = await broker.client.exchange(head + body)
        correlation, topics, length = struct.unpack_from(">iih", frame)
        assert (correlation, topics, length) == (1, 1, 1)
        count, index, code, offset = struct.unpack_from(">iihq", frame, 11)
        assert (count, index, code, offset) == (1, 0, ErrorCode.unsupported_version, -1)
        assert held.log.log_end == 0

    tell(story)


def zstd() -> bytes:
    return encode([Record(0, NOW_MS, b"k", b"v")], compression=Compression.ZSTD)


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_a_batch_in_zstd_needs_version_7(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        held = broker.elect()
        row = await produce(broker, zstd(), version=version)
        assert row == (Row(ErrorCode.unsupported_compression_type, -1) if version < 7 else Row(ErrorCode.none, 0))
        assert held.log.log_end == (0 if version < 7 else 1)
        others = encode([Record(0, NOW_MS, b"k", b"v")], compression=Compression.LZ4)
        assert (await produce(broker, others, version=version)).code is ErrorCode.none

    tell(story)


def test_of_several_topic_ids_the_unknown_ones_are_refused() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        data = ({"index": 0, "records": batch()},)
        topics = [{"topic_id": topic_id, "partition_data": data} for topic_id in (UUID(int=99), TOPIC_ID, None)]
        fields = {"acks": ALL, "timeout": milliseconds(TIMEOUT_MS), "topic_data": topics}
        answer = broker.client.send(handler.KEY, 13, **fields)
        await broker.sync()
        assert rows(answer.result()) == [
            Row(ErrorCode.unknown_topic_id, -1),
            Row(ErrorCode.none, 0),
            Row(ErrorCode.unknown_topic_id, -1),
        ]
        assert [topic.topic_id for topic in answer.result().responses] == [UUID(int=99), TOPIC_ID, None]
        assert partition.log.log_end == 1

    tell(story)


PROVOKED = Provocations(
    handler,
    never=frozenset(
        {
            ErrorCode.offset_out_of_range,
            ErrorCode.offset_not_available,
            ErrorCode.fenced_leader_epoch,
            ErrorCode.unknown_leader_epoch,
            ErrorCode.transaction_coordinator_fenced,
            ErrorCode.unknown_server_error,
        }
    ),
)
"""A Produce request has no offset and no leader epoch, and every log error has a code of its own."""


@PROVOKED.of(ErrorCode.corrupt_message)
async def _bad_checksum(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, with_bytes(batch(), 17, 0, 0, 0, 0))).code


@PROVOKED.of(ErrorCode.invalid_record)
async def _control_batch(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, batch(attributes=CONTROL))).code


@PROVOKED.of(ErrorCode.unsupported_compression_type)
async def _zstd_before_version_7(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, zstd(), version=6)).code


@PROVOKED.of(ErrorCode.invalid_timestamp)
async def _from_the_future(broker: HandlersStory) -> ErrorCode:
    broker.elect().configure(LogConfig(timestamp_after_max_ms=0))
    return (await produce(broker, batch(time_ms=NOW_MS + 1))).code


@PROVOKED.of(ErrorCode.message_too_large)
async def _too_many_records(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, raw_batch(batch()[61:], RECORDS_MAX + 1))).code


@PROVOKED.of(ErrorCode.out_of_order_sequence_number)
async def _gap(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    await produce(broker, sent(0))
    return (await produce(broker, sent(2))).code


@PROVOKED.of(ErrorCode.invalid_producer_epoch)
async def _replaced_producer(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    await produce(broker, sent(0, epoch=2))
    return (await produce(broker, sent(1, epoch=1))).code


@PROVOKED.of(ErrorCode.invalid_txn_state)
async def _outside_the_transaction(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    await produce(broker, in_transaction(0), transactional_id="x")
    return (await produce(broker, sent(1))).code


@PROVOKED.of(ErrorCode.transactional_id_authorization_failed)
async def _no_transactional_id(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, in_transaction(0))).code


@PROVOKED.of(ErrorCode.topic_authorization_failed)
async def _without_rights(broker: HandlersStory) -> ErrorCode:
    partition = broker.elect()
    broker.enforce()
    codes = {
        (await produce(broker, batch(), version=version)).code for version in (3, 9, NAMED, handler.KEY.versions[-1])
    }
    assert partition.log.log_end == 0
    (code,) = codes
    return code


@PROVOKED.of(ErrorCode.invalid_producer_id_mapping)
async def _two_producers(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    answer = send(broker, in_transaction(0), in_transaction(0, producer=8), transactional_id="x")
    await broker.sync()
    return rows(answer.result())[0].code


@PROVOKED.of(ErrorCode.kafka_storage_error)
async def _failed_disk(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    answer = send(broker, batch())
    await broker.turn()
    broker.directories[0].fail(OSError("the disk is gone"))
    await broker.turn()
    assert rows(answer.result()) == [Row(ErrorCode.kafka_storage_error, -1)], "who waited"
    return (await produce(broker, batch())).code


@PROVOKED.of(ErrorCode.unknown_topic_or_partition)
async def _unknown_topic(broker: HandlersStory) -> ErrorCode:
    return (await produce(broker, batch(), topic="nowhere", version=NAMED)).code


@PROVOKED.of(ErrorCode.unknown_topic_id)
async def _unknown_topic_id(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, batch(), topic_id=UUID(int=99))).code


@PROVOKED.of(ErrorCode.not_leader_or_follower)
async def _follower(broker: HandlersStory) -> ErrorCode:
    broker.begin_to_follow()
    return (await produce(broker, batch(), acks=LEADER_ONLY)).code


@PROVOKED.of(ErrorCode.not_enough_replicas)
async def _too_few_in_sync(broker: HandlersStory) -> ErrorCode:
    broker.elect(isr=(ME,), min_isr=2)
    return (await produce(broker, batch())).code


@PROVOKED.of(ErrorCode.request_timed_out)
async def _no_follower_confirms(broker: HandlersStory) -> ErrorCode:
    partition = broker.elect(isr=(ME, FOLLOWER))
    answer = send(broker, batch())
    await broker.sync()
    partition.leader.expire_waiters(asyncio.get_running_loop().time() + TIMEOUT_MS / 1000)
    await broker.turn()
    return rows(answer.result())[0].code


@PROVOKED.of(ErrorCode.invalid_required_acks)
async def _two_acknowledgements(broker: HandlersStory) -> ErrorCode:
    broker.elect()
    return (await produce(broker, batch(), acks=2)).code


@PROVOKED.of(ErrorCode.invalid_topic_exception)
async def _internal_topic(broker: HandlersStory) -> ErrorCode:
    (code,) = {(await produce(broker, batch(), topic=topic, version=NAMED)).code for topic in INTERNAL_TOPICS}
    return code


@PROVOKED.of(ErrorCode.unsupported_version)
async def _version_0(broker: HandlersStory) -> ErrorCode:
    body = struct.pack(">hiih", ALL, TIMEOUT_MS, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 0)
    frame = await broker.client.exchange(struct.pack(">hhih", handler.KEY, 0, 1, -1) + body)
    return ErrorCode(struct.unpack_from(">h", frame, 19)[0])


def test_every_error_code_of_the_handler_is_provoked() -> None:
    PROVOKED.check_all()
