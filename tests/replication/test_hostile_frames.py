"""Replication frames that no broker sends: they end a connection or a stream, and no other partition suffers."""

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest
from peer_fixture import FOLLOWER, HELLO, FollowerFixture, LeaderFixture
from replica_fixture import NOW_MS, TOPIC_ID, ReplicaFixture
from roles_fixture import stamped
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.follower_connections import ROWS_PER_STEP
from cordwood.replication.frames import (
    FOLLOWED_MAX,
    OFFSET_MAX,
    FlushReport,
    FollowRequest,
    MalformedFrame,
    PushKind,
    PushRow,
    ReadRequest,
    Start,
    Suspect,
)
from cordwood.storage.steps import at_once

BIG, INT_MAX = (1 << 63) - 1, (1 << 31) - 1
STEPS = 50
BYSTANDER = 9


def offset(rng: random.Random, end: int) -> int:
    """Return an offset that is likely to be at a boundary of a log, or of an integer."""
    return min(rng.choice([0, 1, end - 1, end, end + 1, -1, OFFSET_MAX, OFFSET_MAX + 1, BIG, -BIG - 1]), BIG)


def stream(rng: random.Random, known: list[int]) -> int:
    return rng.choice([*known * 3, -1, INT_MAX, -INT_MAX - 1, 127 << 24])


def follower_frame(rng: random.Random, end: int) -> bytes:
    def at() -> int:
        return offset(rng, end)

    def one() -> int:
        return stream(rng, [0, 1, 2])

    epoch = rng.choice([1, 1, 1, 0, 2, -1, INT_MAX])
    follow = FollowRequest(one(), rng.choice([TOPIC_ID, TOPIC_ID, UUID(int=8)]), one(), epoch, at(), epoch, at(), at())
    frame = rng.choice(
        [
            frames.encode_follow([follow, follow._replace(stream=one())]),
            frames.encode_reports([FlushReport(one(), at(), rng.choice([0, 0, -1, INT_MAX])) for _ in range(3)]),
            frames.encode_starts([Start(one(), at())]),
            frames.encode_suspect(Suspect(one(), at())),
            frames.encode_leave([one()]),
            frames.encode_read(HELLO, ReadRequest(TOPIC_ID, one(), at(), one())),
        ]
    )
    if rng.random() < 0.2:
        flipped = bytearray(frame)
        flipped[rng.randrange(4, len(flipped))] ^= 1 << rng.randrange(8)
        frame = bytes(flipped[: rng.choice([len(flipped), rng.randrange(5, len(flipped))])])
    return frame


async def flush_all(broker: ReplicaFixture) -> None:
    for syncer in broker.syncers:
        while syncer.groups:
            syncer.let_go()
            await asyncio.sleep(0)


async def commits(broker: ReplicaFixture) -> bool:
    """Return whether a partition of this broker alone commits a record."""
    partition = broker.partition(BYSTANDER)
    before = partition.high_watermark
    partition.append(batch_of("bystander"), NOW_MS)
    await asyncio.sleep(0)
    await flush_all(broker)
    return partition.high_watermark == before + 1


@pytest.mark.parametrize("seed", range(30))
def test_no_frame_of_a_follower_harms_a_leader(seed: int) -> None:
    async def scenario() -> None:
        rng, errors = random.Random(seed), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        broker = LeaderFixture()
        led = [broker.lead(index, in_sync=rng.random() < 0.3) for index in range(3)]
        for partition in led:
            for value in "abcdef":
                partition.append(batch_of(value), NOW_MS)
        for _ in range(STEPS):
            broker.send(follower_frame(rng, led[0].log.log_end))
            await asyncio.sleep(rng.choice([0, 0, 0, 0.02, 0.6]))
            await flush_all(broker)
            broker.channel.take()
            assert all(one.high_watermark <= one.log.log_end and one.error is None for one in led)
        assert await commits(broker)
        assert errors == []

    run(scenario())


@pytest.mark.parametrize("seed", range(30))
def test_no_frame_of_a_leader_harms_a_follower(seed: int) -> None:
    async def scenario() -> None:
        rng, errors, known = random.Random(seed), list[Any](), list[int]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        broker = FollowerFixture()
        followed = [broker.follow(index) for index in range(3)]
        await asyncio.sleep(0.1)
        for _ in range(STEPS):
            known = [*known, *(row.stream for row in broker.asked())][-6:]
            ends = [partition.log.log_end for partition in followed]
            data = stamped("v", rng.choice([0, 1, *ends]), rng.choice([0, 1, 2]))
            if rng.random() < 0.3:
                data = data[: rng.randrange(len(data))]
            size = len(data) + rng.choice([0, 0, 0, 0, -1, 1])
            kind, end = rng.choice(list(PushKind)), rng.choice(ends)
            broker.answer(PushRow(stream(rng, known), kind, offset(rng, end), offset(rng, end), size), data=data)
            await asyncio.sleep(rng.choice([0, 0, 0.05, 1.2]))
            await flush_all(broker)
            assert all(partition.error is None for partition in followed)
        assert await commits(broker)
        assert errors == []

    run(scenario())


def test_a_push_beyond_all_offsets_is_malformed() -> None:
    for row in (PushRow(1, PushKind.TOO_OLD, 0, OFFSET_MAX + 1), PushRow(1, PushKind.DATA, OFFSET_MAX + 1, 0)):
        with pytest.raises(MalformedFrame, match="an offset of"):
            frames.decode_push(memoryview(frames.encode_push([row], 0))[4:])


def test_a_second_introduction_ends_the_connection_with_all_its_streams() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        broker.follow(0)
        connections = broker.follower_connections
        hello = frames.encode_open(HELLO._replace(broker_id=FOLLOWER + 1))
        with pytest.raises(MalformedFrame, match="a second introduction"):
            connections.handle(broker.channel, memoryview(hello)[4:])
        broker.channel.close()
        assert partition.leading is not None
        assert not partition.leading.streams
        assert [connections.epoch_of(broker_id) for broker_id in (FOLLOWER, FOLLOWER + 1)] == [None, None]

    run(scenario())


def test_the_streams_of_a_follower_are_limited() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        row = FollowRequest(0, TOPIC_ID, 0, 1, 0, -1, 0)
        too_many = [row._replace(stream=number) for number in range(FOLLOWED_MAX + 1)]
        frame = frames.encode_follow(too_many)
        with pytest.raises(MalformedFrame, match=f"more than {FOLLOWED_MAX} partitions"):
            frames.decode_follow(memoryview(frame)[4:])
        for rows in (too_many[: FOLLOWED_MAX // 2], too_many[FOLLOWED_MAX // 2 :]):
            channel = broker.channel
            assert channel.is_open
            broker.send(frames.encode_follow(rows))
        assert channel.is_open, "some have begun meanwhile, and were refused"
        broker.send(frames.encode_follow([row._replace(stream=-number) for number in range(1, 1000)]))
        assert not channel.is_open

    run(scenario())


def test_a_frame_whose_connection_ends_before_its_last_step_begins_no_stream() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        rows = [FollowRequest(number, TOPIC_ID, 0, 1, 0, -1, 0) for number in range(3 * ROWS_PER_STEP)]
        frame = memoryview(frames.encode_follow(rows))[4:]
        steps = broker.follower_connections.handle(broker.channel, frame)
        assert steps is not None
        next(steps)
        assert partition.leader.streams
        broker.channel.close()
        at_once(steps)
        await asyncio.sleep(1)
        assert not partition.leader.streams

    run(scenario())


def test_a_frame_of_many_rows_of_the_wrong_length_is_malformed() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        channel = broker.channel
        broker.send(frames.encode_leave(range(ROWS_PER_STEP + 1))[:-1])
        assert not channel.is_open

    run(scenario())
