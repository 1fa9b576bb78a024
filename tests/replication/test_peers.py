"""Validation of what other brokers send: any value is checked or refused, and none fails a partition."""

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_fixture import FollowerFixture, LeaderFixture
from replica_fixture import NOW_MS, TOPIC_ID
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.frames import FlushReport, FollowRequest, PushKind, PushRow, Start, Suspect
from cordwood.replication.partition import Partition
from cordwood.storage.batch import check, stamp

PARTITIONS = 3
INT, LONG = 1 << 31, 1 << 63


def numbers(limit: int) -> st.SearchStrategy[int]:
    """Return a strategy of small valid numbers, and of numbers at the limits of a field."""
    edges = st.sampled_from([-limit, -2, -1, 0, limit - 1])
    return st.integers(-3, 12) | edges | st.integers(-limit, limit - 1)


INTS, LONGS = numbers(INT), numbers(LONG)
STREAMS = st.integers(0, PARTITIONS) | INTS
TOPICS = st.sampled_from([TOPIC_ID, TOPIC_ID, TOPIC_ID, UUID(int=5)])
FOLLOWS = st.builds(
    FollowRequest, STREAMS, TOPICS, st.integers(0, PARTITIONS) | INTS, st.just(1) | INTS, LONGS, INTS, LONGS, LONGS
)
REPORTS = st.builds(FlushReport, STREAMS, LONGS, st.just(0) | INTS)
FRAMES = (
    st.lists(FOLLOWS, min_size=1, max_size=4).map(frames.encode_follow)
    | st.lists(REPORTS, min_size=1, max_size=4).map(frames.encode_reports)
    | st.lists(STREAMS, max_size=4).map(frames.encode_leave)
    | st.lists(st.builds(Start, STREAMS, LONGS), max_size=4).map(frames.encode_starts)
    | st.builds(Suspect, STREAMS, LONGS).map(frames.encode_suspect)
)
KINDS = st.sampled_from(list(PushKind)) | st.integers(-128, 127)
ROWS = st.builds(PushRow, STREAMS, KINDS, LONGS | INTS, LONGS, st.just(0))


@settings(max_examples=150, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=12))
def test_no_frame_of_a_follower_fails_a_partition(sent: list[bytes]) -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        led = [broker.lead(index) for index in range(PARTITIONS)]
        for partition in led:
            for value in "abc":
                partition.append(batch_of(value), NOW_MS)
        for index in range(PARTITIONS):
            broker.follow(index)
        for frame in sent:
            broker.send(frame)
            await broker.turn()
        await asyncio.sleep(1)
        assert [partition.error for partition in led] == [None] * PARTITIONS
        assert [partition.high_watermark for partition in led] <= [3] * PARTITIONS

    run(scenario())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=12))
def test_no_answer_of_a_leader_fails_a_partition(sent: list[list[PushRow]]) -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        followed = [broker.follow(index) for index in range(PARTITIONS)]
        await asyncio.sleep(0.1)
        for row in broker.asked():
            batch = batch_of("a")
            stamped = stamp(check(batch), 0, 1) + batch[16:]
            broker.answer(PushRow(row.stream, PushKind.DATA, 1, 0, len(stamped)), data=stamped)
        assert [partition.log.log_end for partition in followed] == [1] * PARTITIONS
        for rows in sent:
            broker.answer(*rows)
            await asyncio.sleep(0.2)
        await broker.leader_connection.close()
        assert [partition.error for partition in followed] == [None] * PARTITIONS
        assert all(0 <= partition.log.log_start <= partition.log.log_end for partition in followed)

    run(scenario())


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(FlushReport(0, 2, 0), id="more than the leader has"),
        pytest.param(FlushReport(0, 1 << 62, 0), id="absurdly much"),
    ],
)
def test_an_impossible_report_costs_the_stream_and_nothing_else(report: FlushReport) -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        led = [broker.lead(index) for index in range(2)]
        for partition in led:
            partition.append(batch_of("a"), NOW_MS)
        broker.follow(0)
        broker.follow(1)
        await asyncio.sleep(0.1)
        broker.rows()
        broker.send(frames.encode_reports([report, FlushReport(1, 1, 0)]))
        await broker.turn()
        assert [(row.stream, row.kind) for row in broker.rows()] == [(0, PushKind.REFUSED)]
        assert (len(led[0].leader.streams), len(led[1].leader.streams)) == (0, 1)
        assert [follower.flushed_end for follower in (*led[0].leader.followers(), *led[1].leader.followers())] == [0, 1]

    run(scenario())


def test_a_follower_that_goes_back_without_saying_so_is_refused() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        partition.append(batch_of("a"), NOW_MS)
        broker.follow(0, 1)
        broker.send(frames.encode_reports([FlushReport(0, 0, 0)]))
        await broker.turn()
        assert PushKind.REFUSED in [row.kind for row in broker.rows()]
        # A follower that attaches again may report a lower end: it may have another disk now.
        broker.follow(0, 0)
        assert [follower.flushed_end for follower in partition.leader.followers()] == [0]
        assert partition.error is None

    run(scenario())


def test_a_report_of_more_bytes_than_were_sent_ends_the_connection() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        broker.lead(0)
        broker.follow(0)
        channel = broker.channel
        broker.send(frames.encode_reports([FlushReport(0, -1, 1 << 30)]))
        assert not channel.is_open

    run(scenario())


async def following() -> tuple[FollowerFixture, Partition, FollowRequest]:
    """Return a follower with one replica, and its request to the leader."""
    broker = FollowerFixture()
    partition = broker.follow(0)
    await asyncio.sleep(0.1)
    (asked,) = broker.asked()
    return broker, partition, asked


def stamped_batch() -> bytes:
    batch = batch_of("a")
    return stamp(check(batch), 0, 1) + batch[16:]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(PushRow(0, PushKind.DIFFERS, -1, -7), id="an epoch that ends nowhere"),
        pytest.param(PushRow(0, PushKind.DIFFERS, 1, -7), id="an epoch that ends before the first offset"),
        pytest.param(PushRow(0, PushKind.TOO_OLD, 0, -7), id="a log that begins before the first offset"),
        pytest.param(PushRow(0, PushKind.TOO_OLD, 0, 1), id="a log that begins where this one ends"),
    ],
)
def test_an_impossible_answer_cuts_nothing(row: PushRow) -> None:
    async def scenario() -> None:
        broker, partition, asked = await following()
        stamped = stamped_batch()
        broker.answer(PushRow(asked.stream, PushKind.DATA, 1, 0, len(stamped)), data=stamped)
        broker.answer(row._replace(stream=asked.stream))
        assert (partition.log.log_start, partition.log.log_end) == (0, 1)
        await asyncio.sleep(1)
        assert [again.log_end for again in broker.asked()] == [1], "it asks again"
        await broker.leader_connection.close()

    run(scenario())


def test_after_a_refused_batch_no_batch_is_taken() -> None:
    async def scenario() -> None:
        broker, partition, asked = await following()
        stamped = stamped_batch()
        row = PushRow(asked.stream, PushKind.DATA, 1, 0, len(stamped))
        broker.answer(row, data=stamped[:-1] + b"?")
        broker.answer(row, data=stamped)
        assert partition.log.log_end == 0
        await asyncio.sleep(1)
        (again,) = broker.asked()
        assert again.stream != asked.stream, "it asks again"
        await broker.leader_connection.close()

    run(scenario())
