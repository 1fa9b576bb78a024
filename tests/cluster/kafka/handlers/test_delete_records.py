"""DeleteRecords by raw frames: the new log start, the in-sync replicas that must have it on disk, and refusals."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from handlers_fixture import HandlersStory, Provocations, milliseconds, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from produce_requests import batch
from replica_fixture import ME, NOW_MS
from roles_fixture import TOPIC

from cordwood.cluster.kafka.handlers import delete_records as handler
from cordwood.cluster.kafka.handlers import fetch
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import FollowRequest, Start
from cordwood.replication.partition import TopicIdPartition
from cordwood.storage.config import LogConfig

HIGH_WATERMARK = -1
NEWEST = handler.KEY.versions[-1]
TIMEOUT_MS = 1000


class Row(NamedTuple):
    """One partition's part of a response."""

    code: ErrorCode
    low_watermark: int


def send(
    broker: HandlersStory,
    *wanted: tuple[int, int],
    version: int = NEWEST,
    topic: str = TOPIC,
    timeout_ms: int = TIMEOUT_MS,
) -> "asyncio.Future[Any]":
    """Send a request; `wanted` has partitions and offsets."""
    partitions = tuple({"partition_index": index, "offset": offset} for index, offset in wanted)
    return broker.client.send(
        handler.KEY,
        version,
        topics=({"name": topic, "partitions": partitions},),
        timeout=milliseconds(timeout_ms),
    )


def rows(response: Any) -> list[Row]:
    return [Row(row.error_code, row.low_watermark) for topic in response.topics for row in topic.partitions]


async def delete(broker: HandlersStory, before: int, **options: Any) -> Row:
    """Return the result for partition 0. The partition is checkpointed meanwhile."""
    answer = send(broker, (0, before), **options)
    await broker.sync()
    if broker.replicas.get(TOPIC, 0) is not None:
        await broker.save()
    async with asyncio.timeout(10 * TIMEOUT_MS):
        (row,) = rows(await answer)
    return row


async def led(broker: HandlersStory, *, isr: Sequence[int] = (ME,)) -> None:
    """Lead partition 0 with five records, of which an in-sync follower has three."""
    broker.elect(isr=tuple(isr))
    if FOLLOWER in isr:
        broker.follow()
    await broker.commit("a", "b", "c", "d", "e")
    if FOLLOWER in isr:
        broker.report(3)


@pytest.mark.parametrize("version", handler.KEY.versions)
@pytest.mark.parametrize(
    ("before", "row"),
    [
        pytest.param(0, Row(ErrorCode.none, 0), id="nothing"),
        pytest.param(1, Row(ErrorCode.none, 1), id="the first"),
        pytest.param(5, Row(ErrorCode.none, 5), id="all"),
        pytest.param(HIGH_WATERMARK, Row(ErrorCode.none, 5), id="all that is committed"),
        pytest.param(6, Row(ErrorCode.offset_out_of_range, -1), id="more than there is"),
        pytest.param(-2, Row(ErrorCode.offset_out_of_range, -1), id="an offset below all"),
    ],
)
def test_records_below_an_offset_are_deleted(version: int, before: int, row: Row) -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        assert await delete(broker, before, version=version) == row
        log = broker.held().log
        assert (log.log_start, log.log_end) == (max(row.low_watermark, 0), 5)

    tell(story)


def test_nothing_that_is_not_committed_is_deleted() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker, isr=(ME, FOLLOWER))
        assert await delete(broker, 4) == (ErrorCode.offset_out_of_range, -1)
        assert broker.held().log.log_start == 0
        answer = send(broker, (0, HIGH_WATERMARK))
        await broker.save()
        broker.send(frames.encode_starts([Start(0, 3)]))
        assert rows(await answer) == [Row(ErrorCode.none, 3)]

    tell(story)


def test_what_is_deleted_already_stays_so() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        assert await delete(broker, 4) == (ErrorCode.none, 4)
        assert await delete(broker, 2) == (ErrorCode.none, 4)
        assert broker.held().log.log_start == 4

    tell(story)


def test_readers_see_it_at_once() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        answer = send(broker, (0, 2))
        await broker.turn()
        wanted = {"partition": 0, "fetch_offset": 1, "current_leader_epoch": -1, "partition_max_bytes": 1 << 20}
        fetched = await broker.connect().send(
            fetch.KEY, 12, max_wait=milliseconds(0), topics=({"topic": TOPIC, "partitions": (wanted,)},)
        )
        assert fetched.responses[0].partitions[0].error_code is ErrorCode.offset_out_of_range
        assert not answer.done(), "a restart would bring them back"
        await broker.save()
        assert rows(await answer) == [Row(ErrorCode.none, 2)]

    tell(story)


def test_every_in_sync_replica_has_to_have_it_on_disk() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker, isr=(ME, FOLLOWER))
        answer = send(broker, (0, 3))
        await broker.sync()
        broker.send(frames.encode_starts([Start(0, 3)]))
        await broker.sync()
        assert not answer.done(), "the leader's own disk has it not"
        await broker.save()
        assert rows(await answer) == [Row(ErrorCode.none, 3)]
        again = send(broker, (0, 3))
        await broker.sync()
        assert rows(again.result()) == [Row(ErrorCode.none, 3)], "it is so already"

    tell(story)


def test_a_follower_that_has_less_holds_it_up_until_it_leaves_the_in_sync_set() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker, isr=(ME, FOLLOWER))
        answer = send(broker, (0, 3))
        await broker.save()
        for start in (0, 2):
            broker.send(frames.encode_starts([Start(0, start)]))
            await broker.sync()
            assert not answer.done()
        broker.elect(isr=(ME,))
        await broker.sync()
        assert rows(answer.result()) == [Row(ErrorCode.none, 3)]

    tell(story)


def test_partitions_are_waited_for_together() -> None:
    async def story(broker: HandlersStory) -> None:
        for index in (0, 1):
            broker.elect(index)
            await broker.commit("a", "b", index=index)
        answer = send(broker, (0, 1), (1, 2), (2, 1))
        await broker.sync()
        for index in (1, 0):
            assert not answer.done()
            await broker.save(index)
        assert rows(await answer) == [
            Row(ErrorCode.none, 1),
            Row(ErrorCode.none, 2),
            Row(ErrorCode.unknown_topic_or_partition, -1),
        ]

    tell(story)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, TIMEOUT_MS, 2 * TIMEOUT_MS])
def test_a_waiter_gets_a_timeout_and_the_deletion_goes_on(timeout_ms: int) -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert rows(await send(broker, (0, 2), timeout_ms=timeout_ms)) == [Row(ErrorCode.request_timed_out, -1)]
        assert loop.time() - began == pytest.approx(max(timeout_ms / 1000, handler.TIMEOUT_MIN_S))
        assert broker.held().log.log_start == 2
        await broker.save()
        assert await delete(broker, 2, timeout_ms=timeout_ms) == (ErrorCode.none, 2)

    tell(story)


def test_a_client_that_asks_for_no_timeout_gets_an_answer_after_the_flush() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        assert await delete(broker, 2, timeout_ms=0) == (ErrorCode.none, 2)

    tell(story)


def test_who_waits_is_refused_where_another_leads() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        answer = send(broker, (0, 2))
        await broker.sync()
        broker.begin_to_follow(epoch=2)
        assert rows(await answer) == [Row(ErrorCode.not_leader_or_follower, -1)]

    tell(story)


def test_no_follower_joins_the_isr_that_would_restore_what_a_former_leader_deleted() -> None:
    async def story(broker: HandlersStory) -> None:
        await led(broker)
        assert await delete(broker, 2) == (ErrorCode.none, 2)
        broker.elect(epoch=2)
        row = FollowRequest(0, broker.held().topic_id, 0, 2, 5, 1, 5, 1)
        broker.send(frames.encode_follow([row]))
        assert broker.held().leader.propose_isr(lambda _: True) is None
        broker.send(frames.encode_starts([Start(0, 2)]))
        assert broker.held().leader.propose_isr(lambda _: True) == {ME, FOLLOWER}

    tell(story)


PROVOKED = Provocations(
    handler,
    never=frozenset(
        {
            ErrorCode.corrupt_message,
            ErrorCode.invalid_record,
            ErrorCode.invalid_timestamp,
            ErrorCode.unsupported_compression_type,
            ErrorCode.invalid_txn_state,
            ErrorCode.transaction_coordinator_fenced,
            ErrorCode.message_too_large,
            ErrorCode.out_of_order_sequence_number,
            ErrorCode.invalid_producer_epoch,
            ErrorCode.fenced_leader_epoch,
            ErrorCode.unknown_leader_epoch,
            ErrorCode.offset_not_available,
            ErrorCode.unknown_topic_id,
            ErrorCode.unknown_server_error,
        }
    ),
)
"""The handler reads and appends no batch, names topics by name, and checks no leader epoch."""


@PROVOKED.of(ErrorCode.policy_violation)
async def _only_compacted(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    broker.held().configure(LogConfig(compacted=True, deletable=False))
    code = (await delete(broker, 1)).code
    assert broker.held().log.log_start == 0
    return code


@PROVOKED.of(ErrorCode.invalid_topic_exception)
async def _internal_topic_of_any_policy(broker: HandlersStory) -> ErrorCode:
    broker.replicas.open(TopicIdPartition(CONSUMER_OFFSETS, 0, UUID(int=9)), LogConfig(deletable=True), NOW_MS)
    partition = broker.replicas.get(CONSUMER_OFFSETS, 0)
    assert partition is not None
    partition.assigned(Assignment(ME, 1, 1, (ME,), frozenset({ME}), 1))
    partition.append(batch(), NOW_MS)
    await broker.sync()
    answer = send(broker, (0, 1), topic=CONSUMER_OFFSETS)
    await broker.turn()
    assert partition.log.log_start == 0
    return rows(await answer)[0].code


@PROVOKED.of(ErrorCode.request_timed_out)
async def _no_follower_flushes(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    return rows(await send(broker, (0, 1)))[0].code


@PROVOKED.of(ErrorCode.offset_out_of_range)
async def _too_far(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    return (await delete(broker, 6)).code


@PROVOKED.of(ErrorCode.topic_authorization_failed)
async def _without_rights(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    broker.enforce()
    code = (await delete(broker, 1)).code
    assert broker.held().log.log_start == 0
    return code


@PROVOKED.of(ErrorCode.unknown_topic_or_partition)
async def _unknown(broker: HandlersStory) -> ErrorCode:
    return (await delete(broker, 0, topic="nowhere")).code


@PROVOKED.of(ErrorCode.not_leader_or_follower)
async def _follower(broker: HandlersStory) -> ErrorCode:
    broker.begin_to_follow()
    return (await delete(broker, 0)).code


@PROVOKED.of(ErrorCode.not_enough_replicas)
async def _too_few_in_sync(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    broker.elect(epoch=2, min_isr=2)
    code = (await delete(broker, 1)).code
    assert broker.held().log.log_start == 0
    return code


@PROVOKED.of(ErrorCode.kafka_storage_error)
async def _offline(broker: HandlersStory) -> ErrorCode:
    await led(broker)
    broker.held().directory.fail(OSError("the disk is gone"))
    return rows(await send(broker, (0, 1)))[0].code


def test_every_error_code_of_the_handler_is_provoked() -> None:
    PROVOKED.check_all()
