"""Pushes of many batches or rows: a follower handles them in steps, and anything may happen between two of them."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from peer_fixture import FOLLOWER, LEADER, FollowerFixture, LeaderFixture
from replica_fixture import ME, NOW_MS
from roles_fixture import stamped
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import follower_connection, frames, leader_connection, windows
from cordwood.replication.assignment import Assignment
from cordwood.replication.follower_connection import LOOK_ON_S, SEEN_PER_STREAM, STREAMS_PER_PUSH
from cordwood.replication.frames import STREAMS_PER_DIRECTORY, FlushReport, FrameKey, PushKind, PushRow
from cordwood.replication.leader_connection import ONE_STEP_BYTES, ROW_COST, ROWS_PER_PART, STEP_COST
from cordwood.replication.read_cache import CachedBatches, ReplicationReadCache
from cordwood.replication.tasks import spread
from cordwood.replication.throttle import Charge
from cordwood.replication.windows import ANSWERS_ON_THE_WAY_MAX
from cordwood.storage.errors import DamagedLog
from cordwood.storage.steps import Steps, at_once

BATCHES = 3 * STEP_COST
EPOCH = 1
"""The leader epoch in which `FollowerFixture` follows."""


def batches(count: int, first: int = 0) -> bytes:
    return b"".join(stamped("v", offset, EPOCH) for offset in range(first, first + count))


class Following:
    """A broker that follows partitions, each on a stream. The test sends the leader's pushes."""

    def __init__(self, partitions: int = 1, directories: int = 1) -> None:
        self.broker = FollowerFixture(directories=directories)
        self.partitions = [self.broker.follow(index) for index in range(partitions)]
        self.streams: list[int] = []

    async def begin(self) -> "Following":
        while len(self.streams) < len(self.partitions):
            await asyncio.sleep(0.1)
            self.streams += [row.stream for row in self.broker.asked()]
        return self

    def push(self, datas: Sequence[bytes], watermark: int = 0) -> Steps[None]:
        """Begin to handle a large push with data for each partition. Return the steps that are left."""
        rows = [
            PushRow(stream, PushKind.DATA, watermark, 0, len(data))
            for stream, data in zip(self.streams, datas, strict=True)
        ]
        steps = self.broker.begin_answer(*rows, data=b"".join(datas))
        assert steps is not None, "it is large"
        return steps

    def ends(self) -> list[int]:
        return [partition.log.log_end for partition in self.partitions]

    def sent(self, key: FrameKey) -> list[memoryview]:
        return [frame for frame in self.broker.channel.take() if frames.key_of(frame) is key]

    def credit(self) -> int:
        """Return the bytes of credit that the follower has returned since the last call."""
        return sum(row.size for frame in self.sent(FrameKey.REPORT) for row in frames.decode_reports(frame))

    async def flush(self) -> None:
        """Run the group commits that are due, in all log directories."""
        for _ in range(3):
            await self.broker.turn()
            self.broker.let_go()
        await self.broker.turn()


def test_a_push_of_many_batches_is_appended_in_steps_and_flushed_in_one_group() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        broker, (partition,), data = following.broker, following.partitions, batches(BATCHES)
        steps, ends = following.push([data], watermark=BATCHES), [partition.log.log_end]
        assert ends[0] <= STEP_COST
        handling = asyncio.ensure_future(spread(steps))
        while not handling.done():
            await asyncio.sleep(0)
            ends.append(partition.log.log_end)
        assert max(later - earlier for earlier, later in pairwise(ends)) <= STEP_COST
        assert b"".join(bytes(segment.read(0, segment.size)) for segment in partition.log.segments) == data
        assert partition.high_watermark == BATCHES
        await broker.turn()
        assert broker.syncer.count == 1
        await following.flush()
        assert (broker.syncer.count, partition.log.flushed_end) == (1, BATCHES)
        assert following.credit() == len(data)
        await broker.leader_connection.close()

    run(scenario())


def test_a_push_of_many_rows_is_handled_in_steps_and_flushed_in_one_group() -> None:
    async def scenario() -> None:
        count = ROWS_PER_PART // 2
        following = await Following(count).begin()
        steps, appended = following.push([batches(1)] * count), [0, sum(following.ends())]
        handling = asyncio.ensure_future(spread(steps))
        while not handling.done():
            await asyncio.sleep(0)
            appended.append(sum(following.ends()))
        a_step = STEP_COST // ROW_COST
        assert max(later - earlier for earlier, later in pairwise(appended)) <= a_step
        assert following.ends() == [1] * count
        await following.flush()
        assert following.broker.syncer.count == 1
        assert {partition.log.flushed_end for partition in following.partitions} == {1}
        await following.broker.leader_connection.close()

    run(scenario())


def test_the_reports_of_many_flushed_replicas_are_sent_in_frames_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(leader_connection, "REPORTED_PER_FRAME", 4)
        following = await Following(10).begin()
        at_once(following.push([batches(60)] * 10))
        await following.flush()
        await asyncio.sleep(0.1)
        reports = [frames.decode_reports(frame) for frame in following.sent(FrameKey.REPORT)]
        assert [len(rows) for rows in reports] == [4, 4, 2]
        ends = {row.stream: row.flushed_end for rows in reports for row in rows}
        assert ends == dict.fromkeys(following.streams, 60)
        await following.broker.leader_connection.close()

    run(scenario())


def test_a_push_of_many_watermarks_is_handled_in_steps() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        row = PushRow(following.streams[0], PushKind.DATA, 0, 0)
        steps = following.broker.begin_answer(*[row] * (2 * STEP_COST + 1))
        assert steps is not None
        assert len(list(steps)) == 1, "the first of three steps has been made, and the last one yields nothing"
        await following.broker.leader_connection.close()

    run(scenario())


def test_a_push_of_many_answers_is_handled_in_steps_of_fewer_rows() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        a_step = STEP_COST // ROW_COST
        rows = [PushRow(following.streams[0] + number, PushKind.REFUSED, 0, 0) for number in range(20 * a_step)]
        steps = following.broker.begin_answer(*rows)
        assert steps is not None
        assert len(list(steps)) == 18
        await following.broker.leader_connection.close()

    run(scenario())


def test_a_large_push_that_one_step_handles_leaves_none() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        data = stamped("v" * 2 * ONE_STEP_BYTES, 0, EPOCH)
        row = PushRow(following.streams[0], PushKind.DATA, 0, 0, len(data))
        assert following.broker.begin_answer(row, data=data) is None
        await following.flush()
        assert following.partitions[0].log.flushed_end == 1
        await following.broker.leader_connection.close()

    run(scenario())


def test_nothing_is_appended_once_the_connection_has_ended_and_what_was_is_flushed() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        broker, (partition,), data = following.broker, following.partitions, batches(BATCHES)
        steps = following.push([data])
        end = partition.log.log_end
        broker.channel.close()
        await asyncio.sleep(0.5)
        (asked,) = broker.asked()
        assert (asked.stream, asked.log_end, asked.flushed_end) == (following.streams[0], end, 0)
        at_once(steps)
        assert partition.log.log_end == end
        await following.flush()
        assert partition.log.flushed_end == end
        assert following.credit() == 0, "the window of the next connection is another"
        following.push([batches(BATCHES, end)]).close()
        assert partition.log.log_end > end
        await broker.leader_connection.close()

    run(scenario())


def test_what_was_appended_is_flushed_if_the_steps_are_given_up() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        (partition,) = following.partitions
        following.push([batches(BATCHES)]).close()
        await following.flush()
        assert 0 < partition.log.flushed_end == partition.log.log_end < BATCHES
        await following.broker.leader_connection.close()

    run(scenario())


def lead(following: Following) -> None:
    """Let the broker lead partition 0 in the next leader epoch."""
    isr = frozenset({ME, LEADER})
    following.partitions[0].assigned(Assignment(ME, EPOCH + 1, 2, (ME, LEADER), isr, 1))


def follow_again(following: Following) -> None:
    """Let the broker follow the same leader in the next leader epoch."""
    partition, isr = following.partitions[0], frozenset({ME, LEADER})
    assert partition.assigned(Assignment(LEADER, EPOCH + 1, 2, (ME, LEADER), isr, 1))
    following.broker.leader_connection.follow(partition)


def delete(following: Following) -> None:
    assert following.broker.replicas.remove_one("t", 0) is following.partitions[0]


def fail_directory(following: Following) -> None:
    following.partitions[0].directory.fail(OSError(errno.EIO, "the disk is gone"))


def fail_partition(following: Following) -> None:
    following.partitions[0].fail(AssertionError("an invariant does not hold"))


@pytest.mark.parametrize("change", [lead, follow_again, delete, fail_directory, fail_partition])
def test_the_rest_is_discarded_for_a_partition_whose_role_ends_between_two_steps(
    change: Callable[[Following], None],
) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        following = await Following(2, directories=2).begin()
        first, second = following.partitions
        assert first.directory is not second.directory
        datas = [batches(BATCHES), batches(BATCHES)]
        steps = following.push(datas)
        end = first.log.log_end
        change(following)
        at_once(steps)
        assert (first.log.log_end, second.log.log_end) == (end, BATCHES)
        await following.flush()
        assert second.log.flushed_end == BATCHES
        assert following.credit() == sum(map(len, datas)), "the leader's window would be smaller for ever"
        await following.broker.leader_connection.close()

    run(scenario())


async def truncate_by_answer(following: Following) -> None:
    """Truncate the log to its first batch, as the leader of the next epoch demands."""
    broker = following.broker
    follow_again(following)
    await broker.turn()
    (asked,) = broker.asked()
    broker.answer(PushRow(asked.stream, PushKind.DIFFERS, EPOCH, 1))
    for _ in range(10):
        await following.flush()


async def truncate_log(following: Following) -> None:
    """Truncate the log to its first batch, and flush that."""
    (partition,) = following.partitions
    partition.log.truncate(1)
    partition.truncated()
    partition.directory.flusher.touch(partition)
    await following.flush()


@pytest.mark.parametrize("truncate", [truncate_by_answer, truncate_log])
def test_nothing_follows_what_a_truncation_between_two_steps_has_removed(
    truncate: Callable[[Following], Awaitable[None]],
) -> None:
    async def scenario() -> None:
        following = await Following().begin()
        (partition,) = following.partitions
        steps = following.push([batches(BATCHES)], watermark=BATCHES)
        await truncate(following)
        assert partition.log.log_end == 1
        at_once(steps)
        await following.flush()
        assert (partition.log.log_end, partition.high_watermark, partition.error) == (1, 1, None)
        await asyncio.sleep(1)
        assert [row.log_end for row in following.broker.asked()][-1:] == [1]
        await following.broker.leader_connection.close()

    run(scenario())


def test_an_unsound_batch_of_a_later_step_ends_the_stream_after_the_sound_ones() -> None:
    async def scenario() -> None:
        following = await Following(2).begin()
        first, second = following.partitions
        unsound = bytearray(stamped("v", BATCHES - 1, EPOCH))
        unsound[-1] ^= 1
        at_once(following.push([batches(BATCHES - 1) + unsound, batches(2)], watermark=BATCHES))
        assert following.ends() == [2 * STEP_COST, 2]
        assert first.high_watermark == first.log.log_end
        suspects = [frames.decode_suspect(frame) for frame in following.sent(FrameKey.SUSPECT)]
        assert [(suspect.stream, suspect.offset) for suspect in suspects] == [(following.streams[0], 2 * STEP_COST)]
        await following.flush()
        assert [first.log.flushed_end, second.log.flushed_end] == following.ends()
        await following.broker.leader_connection.close()

    run(scenario())


def test_a_row_that_is_malformed_ends_the_connection_and_what_came_before_it_is_flushed() -> None:
    async def scenario() -> None:
        following = await Following().begin()
        (partition,), data = following.partitions, batches(BATCHES)
        row = PushRow(following.streams[0], PushKind.DATA, 0, 0)
        rows = [row._replace(size=len(data)), *[row] * ROWS_PER_PART, row._replace(size=1)]
        channel = following.broker.channel
        following.broker.answer(*rows, data=data)
        assert not channel.is_open
        await following.flush()
        assert partition.log.flushed_end == BATCHES
        await following.broker.leader_connection.close()

    run(scenario())


class Leading:
    """A leader whose follower lacks a record of each of many partitions."""

    def __init__(self) -> None:
        self.broker = LeaderFixture()
        # Stream 0 is none: bytes that were discarded are reported under it.
        self._count = 1

    def add(
        self, count: int, *, in_sync: bool = True, charge: Charge | None = None, directory: int = 0, end: int = 0
    ) -> range:
        """Let the follower request so many more partitions, for a log directory of its own. Return their streams.

        With an `end` of 1 it has their record.
        """
        begin, self._count = self._count, self._count + count
        streams = range(directory * STREAMS_PER_DIRECTORY + begin, directory * STREAMS_PER_DIRECTORY + self._count)
        for index, stream in enumerate(streams, begin):
            self.broker.lead(index, in_sync=in_sync, charge=charge).append(batch_of("v"), NOW_MS)
            self.broker.follow(index, end, stream=stream)
        return streams

    async def pushes(self, *, are_reported: bool = True, turns: int = 50) -> list[list[int]]:
        """Return the streams with data of each push or part, that the follower reports as flushed without a pause.

        In one turn at most one is sent to replicas in sync, and one to others.
        """
        found = []
        for _ in range(turns):
            for frame in self.broker.channel.take():
                rows = [row for row, _ in frames.decode_push(frame) if row.size]
                if are_reported:
                    self.broker.send(frames.encode_reports([FlushReport(row.stream, -1, row.size) for row in rows]))
                found += [[row.stream for row in rows]] if rows else []
            await asyncio.sleep(0)
        return found

    def flushed(self, *streams: int) -> None:
        """Report a record of each of these streams as flushed."""
        size = len(batch_of("v"))
        self.broker.send(frames.encode_reports([FlushReport(stream, -1, size) for stream in streams]))


def test_a_push_has_a_limit_of_streams_and_the_next_ones_have_the_rest() -> None:
    async def scenario() -> None:
        leading = Leading()
        streams = leading.add(5 * STREAMS_PER_PUSH + 1)
        pushes = await leading.pushes()
        assert [len(push) for push in pushes] == [STREAMS_PER_PUSH] * 5 + [1]
        assert [stream for push in pushes for stream in push] == list(streams)

    run(scenario())


def test_a_write_to_many_partitions_in_sync_waits_for_no_report() -> None:
    async def scenario() -> None:
        leading = Leading()
        streams = leading.add(10 * STREAMS_PER_PUSH)
        parts = await leading.pushes(are_reported=False)
        assert [len(part) for part in parts] == [STREAMS_PER_PUSH] * 10
        assert [stream for part in parts for stream in part] == list(streams)
        # All parts are one push in flight, and there may be one more.
        found = []
        for stream in streams[:2]:
            leading.broker.partition(stream).append(batch_of("v"), NOW_MS)
            found += await leading.pushes(are_reported=False)
        assert found == [[streams[0]]]

    run(scenario())


def test_all_parts_of_a_push_have_the_bytes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(windows, "PUSH_BYTES", (2 * STREAMS_PER_PUSH + 1) * len(batch_of("v")))
        leading = Leading()
        leading.add(9 * STREAMS_PER_PUSH)
        parts = await leading.pushes(are_reported=False)
        assert [len(part) for part in parts] == [STREAMS_PER_PUSH, STREAMS_PER_PUSH, 1] * ANSWERS_ON_THE_WAY_MAX

    run(scenario())


def test_replicas_that_catch_up_wait_for_reports() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.add(9 * STREAMS_PER_PUSH, in_sync=False)
        pushes = await leading.pushes(are_reported=False)
        assert [len(push) for push in pushes] == [STREAMS_PER_PUSH] * ANSWERS_ON_THE_WAY_MAX

    run(scenario())


def test_a_connection_that_ends_between_two_parts_leaves_the_rest_to_the_next_one() -> None:
    async def scenario() -> None:
        leading = Leading()
        streams = leading.add(3 * STREAMS_PER_PUSH)
        while not (parts := await leading.pushes(are_reported=False, turns=1)):
            pass
        assert parts == [[*streams[:STREAMS_PER_PUSH]]]
        ended = leading.broker.channel
        assert len(ended.take()) == 1, "the second part"
        leading.broker.connect_again()
        assert await leading.pushes() == []
        assert ended.pushed == []
        for stream in streams:
            leading.broker.follow(stream)
        assert sorted(stream for part in await leading.pushes() for stream in part) == list(streams)

    run(scenario())


def test_replicas_in_sync_come_first_however_many_wait() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.add(2 * STREAMS_PER_PUSH, in_sync=False)
        in_sync = leading.add(STREAMS_PER_PUSH + 10)
        pushes = await leading.pushes()
        assert [*pushes[0], *pushes[1]] == list(in_sync)
        assert [len(push) for push in pushes[1:3]] == [10, STREAMS_PER_PUSH - 10]
        assert sum(map(len, pushes[2:])) == 2 * STREAMS_PER_PUSH

    run(scenario())


def test_no_replica_in_sync_waits_until_one_that_catches_up_has_flushed() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.add(3 * STREAMS_PER_PUSH, in_sync=False)
        assert len(await leading.pushes(are_reported=False)) == ANSWERS_ON_THE_WAY_MAX
        for _ in range(ANSWERS_ON_THE_WAY_MAX):
            in_sync = leading.add(1)
            assert await leading.pushes(are_reported=False) == [list(in_sync)]
        leading.add(1)
        assert await leading.pushes(are_reported=False) == []

    run(scenario())


def test_replicas_in_sync_have_flushed_while_copies_that_were_sent_before_are_not_on_disk() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.add(ANSWERS_ON_THE_WAY_MAX * STREAMS_PER_PUSH, in_sync=False)
        assert len(await leading.pushes(are_reported=False)) == ANSWERS_ON_THE_WAY_MAX
        for _ in range(2 * ANSWERS_ON_THE_WAY_MAX):
            in_sync = leading.add(1)
            assert await leading.pushes(are_reported=False) == [list(in_sync)]
            leading.flushed(*in_sync)

    run(scenario())


@pytest.mark.parametrize("are_discarded", [False, True])
def test_a_report_of_copies_whose_streams_have_ended_makes_no_room_for_replicas_in_sync(are_discarded: bool) -> None:
    async def scenario() -> None:
        leading = Leading()
        copies: list[int] = []
        in_sync: list[int] = []
        for _ in range(ANSWERS_ON_THE_WAY_MAX):
            for streams, are_in_sync in ((copies, False), (in_sync, True)):
                streams += leading.add(1, in_sync=are_in_sync)
                assert await leading.pushes(are_reported=False) == [streams[-1:]]
        leading.broker.send(frames.encode_leave(copies))
        leading.flushed(*([0] * len(copies) if are_discarded else copies))
        waiting = leading.add(1)
        assert await leading.pushes(are_reported=False) == []
        behind = leading.add(1, in_sync=False)
        assert await leading.pushes(are_reported=False) == [list(behind)]
        leading.flushed(in_sync[0])
        assert await leading.pushes(are_reported=False) == [list(waiting)]

    run(scenario())


def test_what_a_stream_was_sent_before_an_error_in_the_same_push_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        leading = Leading()
        streams = leading.add(2, in_sync=False, end=1)
        await leading.pushes()
        data = batch_of("v")

        def take(_cache: ReplicationReadCache, offset: int, _bytes_max: int, _followers: int) -> CachedBatches:
            if offset == 2:
                raise DamagedLog("log", 0, "the last batch")
            return CachedBatches(offset, offset + 1, len(data), data)

        monkeypatch.setattr(ReplicationReadCache, "take", take)
        for _ in range(2):
            for stream in streams:
                leading.broker.partition(stream).append(data, NOW_MS)
        assert await leading.pushes(are_reported=False) == [[*streams]]
        channel = leading.broker.channel
        leading.flushed(0, 0)
        assert leading.broker.channel is channel, "a report of bytes that are not in flight ends the connection"
        leading.flushed(0)
        assert leading.broker.channel is not channel

    run(scenario())


def test_a_replica_that_joins_the_isr_has_flushed_its_copy_first() -> None:
    async def scenario() -> None:
        leading = Leading()
        (joining,) = leading.add(1, in_sync=False)
        assert await leading.pushes(are_reported=False) == [[joining]]
        partition = leading.broker.partition(joining)
        partition.assigned(Assignment(ME, 1, 2, (ME, FOLLOWER), frozenset({ME, FOLLOWER}), 1))
        for _ in range(ANSWERS_ON_THE_WAY_MAX):
            partition.append(batch_of("v"), NOW_MS)
            assert await leading.pushes(are_reported=False) == [[joining]]
        leading.flushed(joining)
        partition.append(batch_of("v"), NOW_MS)
        assert await leading.pushes(are_reported=False) == [], "the copy was flushed"
        leading.flushed(joining)
        assert await leading.pushes(are_reported=False) == [[joining]]
        partition.append(batch_of("v"), NOW_MS)
        assert await leading.pushes(are_reported=False) == []

    run(scenario())


def test_no_replica_that_catches_up_waits_until_those_in_sync_have_flushed() -> None:
    async def scenario() -> None:
        leading = Leading()
        for _ in range(ANSWERS_ON_THE_WAY_MAX):
            leading.add(1)
            assert len(await leading.pushes(are_reported=False)) == 1
        behind = leading.add(1, in_sync=False)
        assert await leading.pushes(are_reported=False) == [list(behind)]

    run(scenario())


def test_a_push_looks_through_a_part_of_very_many_streams_and_the_next_one_through_others() -> None:
    async def scenario() -> None:
        leading = Leading()
        seen = STREAMS_PER_PUSH * SEEN_PER_STREAM
        behind = leading.add(seen + 5, in_sync=False)
        in_sync = leading.add(5)
        pushes = await leading.pushes()
        assert pushes[0] == list(behind[:STREAMS_PER_PUSH])
        assert pushes[1] == list(in_sync)
        assert pushes[2][:5] == list(behind[seen:])
        assert sorted(stream for push in pushes for stream in push) == [*behind, *in_sync]

    run(scenario())


def test_a_stream_has_its_next_turn_after_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push has room for one batch of each of two streams, and is made of the first four."""
    limits = {"STREAMS_PER_PUSH": 2, "SEEN_PER_STREAM": 2, "SHARE_BYTES": 1}

    async def scenario() -> None:
        leading = Leading()
        for name, number in limits.items():
            monkeypatch.setattr(follower_connection, name, number)
        monkeypatch.setattr(windows, "PUSH_BYTES", 2 * len(batch_of("v")))
        behind = leading.add(8, in_sync=False)
        for _ in range(3):
            for index in behind:
                leading.broker.partition(index).append(batch_of("v"), NOW_MS)
        turns = [stream for push in await leading.pushes() for stream in push]
        assert sorted(turns[: len(behind)]) == list(behind)
        assert len(turns) > len(behind)

    run(scenario())


def test_many_throttled_replicas_keep_no_other_one_waiting() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.broker.throttle.set_rates(0, {}, asyncio.get_running_loop().time())
        leading.add(2 * STREAMS_PER_PUSH, in_sync=False, charge=Charge.LEADER)
        others = leading.add(2 * STREAMS_PER_PUSH, in_sync=False)
        assert [stream for push in await leading.pushes() for stream in push] == list(others)

    run(scenario())


def test_very_many_throttled_replicas_keep_no_other_one_waiting_for_long() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.broker.throttle.set_rates(0, {}, asyncio.get_running_loop().time())
        leading.add(2 * STREAMS_PER_PUSH * SEEN_PER_STREAM, in_sync=False, charge=Charge.LEADER)
        others = leading.add(2, in_sync=False)
        assert await leading.pushes() == []
        await asyncio.sleep(2 * LOOK_ON_S)
        assert await leading.pushes() == [list(others)]

    run(scenario())


def test_log_directories_share_the_streams_of_a_push() -> None:
    async def scenario() -> None:
        leading = Leading()
        streams = [leading.add(STREAMS_PER_PUSH, directory=directory) for directory in range(2)]
        half = STREAMS_PER_PUSH // 2
        pushes = await leading.pushes()
        assert pushes == [[*streams[0][:half], *streams[1][:half]], [*streams[0][half:], *streams[1][half:]]]

    run(scenario())


def test_streams_without_data_do_not_stop_those_behind_them() -> None:
    async def scenario() -> None:
        leading = Leading()
        leading.add(3 * STREAMS_PER_PUSH, end=1)
        last = leading.add(1)
        assert await leading.pushes() == [list(last)]

    run(scenario())
