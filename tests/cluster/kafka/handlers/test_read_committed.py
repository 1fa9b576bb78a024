"""read_committed by raw frames: Fetch, ListOffsets and DescribeProducers of partitions with transactions."""

from typing import Any

import pytest
from fetch_requests import READ_COMMITTED, READ_UNCOMMITTED, fetch, rows, send, wanted
from handlers_fixture import MB, HandlersStory, tell
from kio.schema.errors import ErrorCode
from peer_fixture import FOLLOWER
from replica_fixture import ME
from roles_fixture import TOPIC
from transactions import PRODUCER, decide, write

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.handlers import describe_producers, list_offsets
from cordwood.cluster.kafka.handlers import fetch as handler
from cordwood.replication.partition import Partition
from cordwood.storage.config import LogConfig

LATEST = -1
WAIT_MS = 500


async def fetched(broker: HandlersStory, offset: int = 0, *, version: int = 12, **options: Any) -> Any:
    """Return the partition's part of a response."""
    response = await fetch(broker, wanted(offset), version=version, **{"isolation": READ_COMMITTED, **options})
    return response.responses[0].partitions[0]


def offsets_of(part: Any) -> list[int]:
    (row,) = rows(_Response(part)).values()
    return [offset for offset, _ in row.values]


class _Response:
    def __init__(self, part: Any) -> None:
        self.responses = (_Topic(part),)


class _Topic:
    def __init__(self, part: Any) -> None:
        self.partitions = (part,)


def aborted_of(part: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]


@pytest.mark.parametrize("version", handler.KEY.versions)
def test_every_version_reads_up_to_the_last_stable_offset_and_lists_what_was_aborted(version: int) -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a", producer=1)
        write(partition, "b", producer=2)
        decide(partition, commit=False, producer=2)
        decide(partition, commit=False, producer=1)
        write(partition, "c", producer=3)
        await broker.sync()
        part = await fetched(broker, version=version)
        assert (offsets_of(part), aborted_of(part)) == ([0, 1, 2, 3], [(1, 0), (2, 1)])
        assert (part.last_stable_offset, part.high_watermark) == (4, 5)
        part = await fetched(broker, 3, version=version)
        assert (offsets_of(part), aborted_of(part)) == ([3], [(1, 0)])
        part = await fetched(broker, version=version, isolation=READ_UNCOMMITTED)
        assert (offsets_of(part), aborted_of(part)) == ([0, 1, 2, 3, 4], [])
        assert (part.last_stable_offset, part.high_watermark) == (4, 5)

    tell(story)


def test_a_new_leader_that_shows_no_high_watermark_yet_shows_no_last_stable_offset() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        write(partition, "a", producer=1)
        write(partition, "b", producer=2)
        await broker.sync()
        broker.report(1)
        broker.elect(epoch=2, isr=(ME, FOLLOWER))
        part = await fetched(broker, isolation=READ_UNCOMMITTED)
        assert (offsets_of(part), part.last_stable_offset, part.high_watermark) == ([0], -1, -1)

    tell(story)


def test_a_committed_transaction_is_read_once_its_marker_is_committed() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect(isr=(ME, FOLLOWER))
        broker.follow()
        write(partition, "a")
        decide(partition, commit=True)
        await broker.sync()
        broker.report(1)
        part = await fetched(broker)
        assert (offsets_of(part), part.last_stable_offset, part.high_watermark) == ([], 0, 1)
        assert offsets_of(await fetched(broker, isolation=READ_UNCOMMITTED)) == [0]
        broker.report(2)
        part = await fetched(broker)
        assert (offsets_of(part), aborted_of(part), part.last_stable_offset) == ([0, 1], [], 2)

    tell(story)


def test_a_long_poll_counts_the_bytes_below_the_last_stable_offset() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        polls = [
            send(broker, wanted(), client=broker.connect(), wait_ms=WAIT_MS, isolation=isolation)
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        ]
        await broker.turn()
        write(partition, "a")
        await broker.sync()
        assert [poll.done() for poll in polls] == [False, True]
        decide(partition, commit=True)
        await broker.sync()
        assert offsets_of(polls[0].result().responses[0].partitions[0]) == [0, 1]

    tell(story)


def test_a_long_poll_of_several_partitions_counts_them_too() -> None:
    async def story(broker: HandlersStory) -> None:
        partition, _ = broker.elect(), broker.elect(1)
        poll = send(broker, wanted(), wanted(index=1), wait_ms=WAIT_MS, isolation=READ_COMMITTED)
        await broker.turn()
        write(partition, "a")
        await broker.sync()
        assert not poll.done()
        decide(partition, commit=False)
        await broker.sync()
        parts = poll.result().responses[0].partitions
        assert [aborted_of(part) for part in parts] == [[(PRODUCER, 0)], []]

    tell(story)


async def with_aborted_transactions(broker: HandlersStory) -> Partition:
    """Return a partition with 20 aborted transactions on disk."""
    partition = broker.elect()
    for sequence in range(20):
        write(partition, "a", sequence=sequence)
        decide(partition, commit=False)
    await broker.save()
    return partition


def test_aborted_transactions_of_cold_segments_are_read_beside_the_event_loop() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = await with_aborted_transactions(broker)
        assert len(partition.log.segments) > 2
        for segment in partition.log.segments:
            segment.release()
        broker.disk.cool()
        part = await fetched(broker, bytes_max=100)
        assert aborted_of(part) == [(PRODUCER, 0)]

    tell(story, LogConfig(segment_bytes=1000, index_interval_bytes=200))


def test_a_damaged_aborted_index_is_no_empty_one() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = await with_aborted_transactions(broker)
        first = partition.log.segments[0]
        first.release()
        broker.disk.lose(first.aborted.path)
        assert (await fetched(broker)).error_code is ErrorCode.corrupt_message
        assert (await fetched(broker, isolation=READ_UNCOMMITTED)).error_code is ErrorCode.none

    tell(story, LogConfig(segment_bytes=1000, index_interval_bytes=200))


@pytest.mark.parametrize("version", [version for version in list_offsets.KEY.versions if version >= 2])
def test_the_latest_offset_of_a_read_committed_consumer_is_the_last_stable_one(version: int) -> None:
    async def latest(broker: HandlersStory, isolation: int) -> int:
        response = await broker.ask(
            list_offsets.KEY,
            version,
            replica_id=-1,
            isolation_level=isolation,
            topics=(
                {
                    "name": TOPIC,
                    "partitions": ({"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST},),
                },
            ),
        )
        offset: int = response.topics[0].partitions[0].offset
        return offset

    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        await broker.commit("plain")
        write(partition, "a", "b")
        await broker.sync()
        assert [await latest(broker, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)] == [3, 1]
        decide(partition, commit=True)
        await broker.sync()
        assert [await latest(broker, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)] == [4, 4]

    tell(story)


def test_the_producers_of_a_partition_are_described_with_their_transactions() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a", producer=1)
        write(partition, "b", producer=2)
        decide(partition, commit=True, producer=2, epoch=3, coordinator_epoch=5)
        response = await broker.ask(
            ApiKey.DESCRIBE_PRODUCERS,
            describe_producers.KEY.versions[-1],
            topics=({"name": TOPIC, "partition_indexes": (0,)},),
        )
        described = {
            each.producer_id: (
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in response.topics[0].partitions[0].active_producers
        }
        assert described == {1: (0, 0, -1, 0), 2: (3, -1, 5, -1)}

    tell(story)


def test_deletion_within_a_transaction_moves_its_last_stable_offset() -> None:
    async def story(broker: HandlersStory) -> None:
        partition = broker.elect()
        write(partition, "a", "b", "c")
        await broker.sync()
        partition.leader.delete_records(2)
        part = await fetched(broker, 2)
        assert (offsets_of(part), part.last_stable_offset, part.log_start_offset) == ([], 2, 2)
        decide(partition, commit=False)
        await broker.sync()
        part = await fetched(broker, 2, bytes_max=MB)
        assert (aborted_of(part), part.last_stable_offset) == ([(PRODUCER, 0)], 4)

    tell(story)


@pytest.mark.parametrize("name", ["", ".", "a/b", "x" * 250])
def test_producers_of_an_invalid_topic_are_refused_as_such(name: str) -> None:
    async def story(broker: HandlersStory) -> None:
        topics = ({"name": name, "partition_indexes": (0,)},)
        response = await broker.ask(ApiKey.DESCRIBE_PRODUCERS, describe_producers.KEY.versions[-1], topics=topics)
        assert response.topics[0].partitions[0].error_code is ErrorCode.invalid_topic_exception

    tell(story)
