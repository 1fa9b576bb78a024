"""Validation of replicated batches: a follower checks checksums, offsets and leader epochs before it appends."""

import asyncio

import pytest
from peer_fixture import LEADER, FollowerFixture
from replica_fixture import ME
from roles_fixture import stamped as stamped_in
from virtual_time import run

from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import FrameKey, PushKind, PushRow, Suspect
from cordwood.replication.partition import Partition

STREAM_EPOCH = 1
"""The leader epoch in which `FollowerFixture` follows."""


def stamped(offset: int, epoch: int = STREAM_EPOCH) -> bytes:
    return stamped_in("v", offset, epoch)


def flipped(batch: bytes, place: int) -> bytes:
    changed = bytearray(batch)
    changed[place] ^= 1
    return bytes(changed)


async def following(broker: FollowerFixture) -> tuple[Partition, int]:
    """Return a follower with one batch of epoch 1, and the number of its stream."""
    partition = broker.follow(0)
    await asyncio.sleep(0.1)
    (asked,) = broker.asked()
    push(broker, asked.stream, stamped(0))
    assert partition.log.log_end == 1
    return partition, asked.stream


def push(broker: FollowerFixture, stream: int, data: bytes, watermark: int = 0, log_start: int = 0) -> None:
    broker.answer(PushRow(stream, PushKind.DATA, watermark, log_start, len(data)), data=data)


UNSOUND = [
    pytest.param(flipped(stamped(1), len(stamped(1)) - 1), id="a flipped bit in the last record"),
    pytest.param(flipped(stamped(1), 17), id="a flipped bit in the checksum"),
    pytest.param(flipped(stamped(1), 16), id="another magic"),
    pytest.param(stamped(1) + flipped(stamped(2), 64), id="a flipped bit in the second batch"),
    pytest.param(stamped(1)[:-1], id="a batch without its last byte"),
    pytest.param(stamped(2), id="a gap"),
    pytest.param(stamped(0), id="what is there already"),
    pytest.param(stamped(1) + stamped(3), id="a gap within"),
    pytest.param(stamped(1, epoch=0), id="an epoch below that of the log's end"),
    pytest.param(stamped(1) + stamped(2, epoch=0), id="epochs that fall"),
    pytest.param(stamped(1, epoch=STREAM_EPOCH + 1), id="an epoch above the leader's"),
    pytest.param(stamped(1) + stamped(2, epoch=STREAM_EPOCH + 1), id="an epoch above the leader's, within"),
    pytest.param(stamped(1, epoch=-1), id="no epoch"),
]


def test_gaps_are_taken_where_the_leader_says_that_its_log_was_compacted() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        data = stamped(3) + stamped(7)
        broker.answer(PushRow(stream, PushKind.DATA_WITH_GAPS, 0, 0, len(data)), data=data)
        assert partition.log.log_end == 8
        again = stamped(7)
        broker.answer(PushRow(stream, PushKind.DATA_WITH_GAPS, 0, 0, len(again)), data=again)
        assert partition.log.log_end == 8, "an offset never comes twice"

    run(scenario())


@pytest.mark.parametrize("data", UNSOUND)
def test_nothing_of_what_is_unsound_is_written(data: bytes) -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        before = partition.log.read(0, 1 << 20, 1)
        push(broker, stream, data, watermark=9)
        await broker.turn()
        assert partition.log.log_end == 1
        assert partition.log.read(0, 1 << 20, 1) == before
        assert partition.high_watermark <= 1
        assert partition.error is None
        suspects = [
            frames.decode_suspect(frame) for frame in broker.channel.take() if frames.key_of(frame) is FrameKey.SUSPECT
        ]
        assert suspects == [Suspect(stream, 1)], "the leader is notified, and checks its own log"
        # The follower drops the batches in flight after the refused one, and fetches from its log end again.
        push(broker, stream, stamped(1))
        assert partition.log.log_end == 1
        await asyncio.sleep(1)
        (again,) = broker.asked()
        assert (again.log_end, again.last_epoch) == (1, STREAM_EPOCH)
        push(broker, again.stream, stamped(1))
        assert partition.log.log_end == 2
        await broker.leader_connection.close()

    run(scenario())


@pytest.mark.parametrize("epochs", [(1, 1), (1, 1, 1, 1)])
def test_what_is_sound_is_written_as_the_leader_has_it(epochs: tuple[int, ...]) -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        data = b"".join(stamped(1 + number, epoch) for number, epoch in enumerate(epochs))
        push(broker, stream, data, watermark=2)
        assert partition.log.log_end == 1 + len(epochs)
        assert partition.log.read(1, 1 << 20, 1 + len(epochs)) == data
        assert partition.high_watermark == 2
        await broker.leader_connection.close()

    run(scenario())


def test_what_a_former_leader_had_on_its_way_is_not_taken() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        broker.channel.take()
        partition.assigned(Assignment(ME, 2, 2, (ME, LEADER), frozenset({ME, LEADER}), 1))
        await broker.turn()
        left = [frames.decode_leave(frame) for frame in broker.channel.take() if frames.key_of(frame) is FrameKey.LEAVE]
        assert left == [[stream]]
        push(broker, stream, stamped(1))
        assert (partition.log.log_end, partition.error) == (1, None)
        await broker.leader_connection.close()

    run(scenario())


@pytest.mark.parametrize(
    ("row", "start", "end"),
    [
        pytest.param(PushRow(0, PushKind.DIFFERS, STREAM_EPOCH, 1), 0, 1, id="cut"),
        pytest.param(PushRow(0, PushKind.TOO_OLD, 0, 50), 50, 50, id="begun anew"),
    ],
)
def test_what_is_committed_lies_within_the_log_whatever_becomes_of_it(row: PushRow, start: int, end: int) -> None:
    """An unclean election removes committed records. A log that starts over has nothing before its log start."""

    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        push(broker, stream, stamped(1) + stamped(2), watermark=3)
        assert partition.high_watermark == 3
        broker.answer(row._replace(stream=stream))
        await asyncio.sleep(1)
        assert (partition.log.log_start, partition.log.log_end, partition.high_watermark) == (start, end, end)
        await broker.leader_connection.close()

    run(scenario())


def test_a_follower_begins_where_its_leader_does_and_never_goes_back() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        push(broker, stream, stamped(1) + stamped(2), watermark=1)
        for reported, start in ((2, 2), (1, 2), (0, 2), (9, 3)):
            push(broker, stream, b"", watermark=3, log_start=reported)
            assert partition.log.log_start == start, "at most where its own log ends"
        await broker.leader_connection.close()

    run(scenario())


def test_what_is_committed_is_what_the_leader_says_within_the_own_log() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        partition, stream = await following(broker)
        push(broker, stream, stamped(1) + stamped(2), watermark=1)
        for reported, known in ((1, 1), (2, 2), (0, 2), (9, 3)):
            push(broker, stream, b"", watermark=reported)
            assert partition.high_watermark == known
        await broker.leader_connection.close()

    run(scenario())
