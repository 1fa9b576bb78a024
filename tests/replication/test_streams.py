"""Replication streams: an error stops one stream, and the others of the same follower go on at a fair share."""

import asyncio
import errno
from itertools import pairwise

from peer_fixture import FOLLOWER, FollowerFixture, LeaderFixture
from replica_fixture import ME, NOW_MS, TOPIC_ID, housekeeping_of
from roles_fixture import stamped
from virtual_time import run

from cordwood.chaos.sim.faults import DiskFaults, os_error
from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.follower_connection import BEGUN_PER_STEP
from cordwood.replication.frames import FlushReport, FollowRequest, PushKind, PushRow, Start
from cordwood.replication.leader_connection import ANSWER_S, ASK_AGAIN_MAX_S, ASKED_PER_FRAME
from cordwood.replication.partition import Partition
from cordwood.replication.windows import ANSWERS_ON_THE_WAY_MAX, PUSH_BYTES
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, encode

KIB = 1 << 10


def fill(partition: Partition, *values: str) -> None:
    for value in values:
        partition.append(batch_of(value), NOW_MS)


def test_a_segment_that_cannot_be_read_stops_no_other_partition() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        for index in range(3):
            fill(broker.lead(index), "a", "b")
        broker.disk.faults.fail_reads("/1/")
        broker.follow(1)
        broker.follow(2)
        broker.follow(7, stream=7)
        broker.follow(0)
        await asyncio.sleep(0.5)
        rows = broker.rows()
        assert {row.stream for row in rows if row.kind == PushKind.DATA and row.size} == {0, 2}
        # The leader refuses an unknown partition and one that it cannot read, so that the follower asks again.
        assert {row.stream for row in rows if row.kind == PushKind.REFUSED} == {1, 7}

    run(scenario())


def test_a_follower_truncates_once_the_leader_has_read_the_batch_that_begins_the_next_epoch() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0, in_sync=False)
        fill(partition, "a", "b")
        partition.assigned(Assignment(ME, 2, 2, (ME, FOLLOWER), frozenset({ME}), 1))
        fill(partition, "c")
        await broker.turn()
        broker.syncer.let_go()
        await broker.turn()
        broker.disk.cool()
        answers = []
        for _ in range(2):
            broker.send(frames.encode_follow([FollowRequest(0, TOPIC_ID, 0, 2, 3, 1, 3)]))
            await asyncio.sleep(0.1)
            answers += broker.rows()
        assert answers == [PushRow(0, PushKind.REFUSED, 0, 0), PushRow(0, PushKind.DIFFERS, 1, 2)]

    run(scenario())


def test_a_missing_segment_stops_no_other_partition() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        for index in range(2):
            fill(broker.lead(index), "a", "b")
        for segment in broker.partition(0).log.segments:
            broker.disk.remove(segment.path)
            segment.release()
        broker.follow(0)
        broker.follow(1)
        await asyncio.sleep(0.5)
        assert {row.stream for row in broker.rows() if row.size} == {1}

    run(scenario())


def test_many_streams_begin_some_at_a_time_with_what_is_reported_meanwhile() -> None:
    async def scenario() -> None:
        broker, count = LeaderFixture(), 3 * BEGUN_PER_STEP
        for index in range(count):
            fill(broker.lead(index, in_sync=False), "a")
        asked = [FollowRequest(index, TOPIC_ID, index, 1, 1, 1, 0, 0) for index in range(count)]
        broker.send(frames.encode_follow(asked))
        broker.send(frames.encode_reports([FlushReport(count - 1, 1, 0)]))
        broker.send(frames.encode_starts([Start(count - 1, 1)]))
        broker.send(frames.encode_leave([count - 2]))
        begun = []
        for _ in range(20):
            begun.append(sum(bool(role.streams) for role in (broker.partition(at).leader for at in range(count))))
            await asyncio.sleep(0)
        assert begun[-1] == count - 1
        assert max(later - earlier for earlier, later in pairwise(begun)) == BEGUN_PER_STEP
        assert not broker.partition(count - 2).leader.streams
        follower = broker.partition(count - 1).leader.view.followers[FOLLOWER]
        assert (follower.flushed_end, follower.log_start) == (1, 1)

    run(scenario())


def test_a_follower_that_asks_again_has_one_stream() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        for stream in (0, 7):
            broker.follow(0, stream=stream)
            await broker.turn()
        broker.rows()
        fill(partition, "a")
        await asyncio.sleep(0.5)
        assert [row.stream for row in broker.rows() if row.size] == [7]
        assert [stream.id for stream in partition.leader.streams] == [7]

    run(scenario())


class CountedReads(DiskFaults):
    """Faults that answer every read with EIO, and count the reads."""

    count = 0

    def check_read(self, path: str, *_: int) -> None:
        self.count += 1
        raise os_error(errno.EIO, path)


def test_a_disk_that_cannot_read_is_asked_once_a_stream() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        fill(partition, "a", "b")
        await broker.turn()
        broker.syncer.let_go()
        broker.disk.cool()
        broker.disk.faults = reads = CountedReads()
        broker.follow(0)
        for _ in range(100):
            await asyncio.sleep(0.01)
        assert [row.kind for row in broker.rows()] == [PushKind.REFUSED]
        assert not partition.leader.streams
        assert reads.count < 5

    run(scenario())


def test_a_partition_that_is_refused_is_asked_for_less_and_less_often() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        broker.follow(0)
        await asyncio.sleep(0.2)
        asked = []
        for _ in range(4000):
            if rows := broker.asked():
                asked.append(asyncio.get_running_loop().time())
                broker.refuse(*rows)
            await asyncio.sleep(0.01)
        waits = [later - earlier for earlier, later in pairwise(asked)]
        assert waits[0] < 0.1
        assert ASK_AGAIN_MAX_S <= waits[-1] < ASK_AGAIN_MAX_S + 0.1
        assert len(asked) < 50
        await broker.leader_connection.close()

    run(scenario())


def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        broker.follow(0)
        await asyncio.sleep(0.2)
        (first,) = broker.asked()
        await asyncio.sleep(ANSWER_S + 1)
        (again,) = broker.asked()
        assert again.stream != first.stream
        assert again.log_end == first.log_end
        await broker.leader_connection.close()

    run(scenario())


def test_a_follower_reports_its_log_start_once_that_is_on_its_disk() -> None:
    def reported(broker: FollowerFixture) -> list[Start]:
        starts = [frame for frame in broker.channel.take() if frames.key_of(frame) is frames.FrameKey.START]
        return [row for frame in starts for row in frames.decode_starts(frame)]

    async def scenario() -> None:
        broker = FollowerFixture()
        partition = broker.follow(0)
        await asyncio.sleep(0.2)
        (row,) = broker.asked()
        data = stamped("a", 0, 1) + stamped("b", 1, 1)
        broker.answer(PushRow(row.stream, PushKind.DATA, 2, 1, len(data)), data=data)
        await broker.turn()
        broker.let_go()
        await asyncio.sleep(0.2)
        assert reported(broker) == []
        await housekeeping_of(broker).checkpoints.write(partition)
        await asyncio.sleep(0.2)
        assert reported(broker) == [Start(row.stream, 1)]
        await broker.leader_connection.close()

    run(scenario())


def test_a_partition_does_not_wait_for_the_backlog_of_others() -> None:
    async def scenario() -> None:
        broker = LeaderFixture(LogConfig())
        large = encode([Record(0, NOW_MS, b"k", bytes(60 * KIB))])
        for index in range(3):
            partition = broker.lead(index)
            for _ in range(300):
                partition.append(large, NOW_MS)
        fill(broker.lead(3), "little")
        for index in range(4):
            broker.follow(index)
        waited = 0
        while all(row.stream != 3 for row in await _next_push(broker)):
            waited += 1
        assert waited == 0, f"it waited for {waited} pushes"

    run(scenario())


def test_backlogs_take_turns_and_use_all_the_room() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        large = encode([Record(0, NOW_MS, b"k", bytes(60 * KIB))])
        for index in range(40):
            partition = broker.lead(index)
            for _ in range(3):
                partition.append(large, NOW_MS)
        for index in range(40):
            broker.follow(index)
        order: list[int] = []
        while len(set(order)) < 40:
            rows = [row for row in await _next_push(broker) if row.size]
            assert sum(row.size for row in rows) >= PUSH_BYTES - 70 * KIB
            order += [row.stream for row in rows]
        assert len(set(order[:40])) == 40, "no stream had a second turn before all had one"

    run(scenario())


async def _next_push(broker: LeaderFixture) -> list[PushRow]:
    """Return the rows of the next push with data, and report them as flushed. Return [] if no such push comes."""
    for _ in range(100):
        await broker.turn()
        if broker.channel.pushed:
            frame = memoryview(broker.channel.pushed.pop(0))[4:]
            rows = [row for row, _ in frames.decode_push(frame)]
            if any(row.size for row in rows):
                broker.send(frames.encode_reports([FlushReport(row.stream, -1, row.size) for row in rows]))
                return rows
    return []


def test_a_backlog_fills_the_window_without_a_report() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        fill(broker.lead(0), *("v" * (PUSH_BYTES // 2) for _ in range(8)))
        broker.follow(0)
        # No time passes, so that no high watermark is due.
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(bool(row.size) for row in broker.rows()) == ANSWERS_ON_THE_WAY_MAX

    run(scenario())


def test_more_partitions_than_fit_into_a_request_are_requested_in_the_next_ones() -> None:
    async def scenario() -> None:
        broker, count = FollowerFixture(), ASKED_PER_FRAME + 10
        for index in range(count):
            broker.follow(index)
        await asyncio.sleep(ANSWER_S / 2)
        assert {row.partition for row in broker.asked()} == set(range(count))

    run(scenario())


def test_a_stream_that_is_left_returns_the_credit_of_what_is_not_flushed() -> None:
    async def scenario() -> None:
        broker, data = FollowerFixture(), stamped("v", 0, 1)
        broker.follow(0)
        await asyncio.sleep(0.1)
        (row,) = broker.asked()
        broker.answer(PushRow(row.stream, PushKind.DATA, 0, 0, len(data)), data=data)
        broker.refuse(row)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sent = [frame for frame in broker.channel.take() if frames.key_of(frame) is frames.FrameKey.REPORT]
        assert sum(report.size for frame in sent for report in frames.decode_reports(frame)) == len(data)

    run(scenario())


def test_a_partition_that_is_left_is_neither_asked_for_nor_reported() -> None:
    async def scenario() -> None:
        broker = FollowerFixture()
        kept, left = broker.follow(0), broker.follow(1)
        await asyncio.sleep(0.2)
        connection = broker.leader_connection
        asked = broker.asked()
        assert {row.partition for row in asked} == {0, 1}
        for partition in (kept, left):
            following = partition.following
            assert following is not None
            connection.report(following)
            connection.start(following)
        assert left.following is not None
        connection.leave(left.following)
        connection.follow(left)
        connection.leave(left.following)
        await asyncio.sleep(0.2)
        sent = broker.channel.take()
        of_kind = {
            key: [frame for frame in sent if frames.key_of(frame) is key]
            for key in (frames.FrameKey.FOLLOW, frames.FrameKey.REPORT, frames.FrameKey.START)
        }
        stream = kept.following.stream if kept.following is not None else -1
        assert not of_kind[frames.FrameKey.FOLLOW]
        reports = [row.stream for frame in of_kind[frames.FrameKey.REPORT] for row in frames.decode_reports(frame)]
        starts = [row.stream for frame in of_kind[frames.FrameKey.START] for row in frames.decode_starts(frame)]
        assert (reports, starts) == ([stream], [stream])
        await connection.close()

    run(scenario())


def test_a_backlog_that_is_on_disk_is_read_ahead_for_each_push() -> None:
    async def scenario() -> None:
        broker = LeaderFixture()
        partition = broker.lead(0)
        fill(partition, *("v" * (PUSH_BYTES // 2) for _ in range(8)))
        await broker.turn()
        broker.syncer.let_go()
        broker.disk.cool()
        broker.follow(0)
        received = 0
        for _ in range(50):
            await asyncio.sleep(0.05)
            rows = [row for row in broker.rows() if row.size]
            if rows:
                received += sum(row.size for row in rows)
                broker.send(frames.encode_reports(FlushReport(row.stream, -1, row.size) for row in rows))
            broker.disk.cool()
        assert received == partition.log.size

    run(scenario())


def test_a_new_connection_gets_no_credit_for_bytes_of_the_former_one() -> None:
    """The leader would close it as one of impossible reports."""

    async def scenario() -> None:
        broker, data = FollowerFixture(), stamped("v", 0, 1)
        partition = broker.follow(0)
        await asyncio.sleep(0.2)
        (row,) = broker.asked()
        broker.answer(PushRow(row.stream, PushKind.DATA, 0, 0, len(data)), data=data)
        broker.channel.close()
        await asyncio.sleep(0.5)
        assert len(broker.dialled) == 2
        broker.let_go()
        await asyncio.sleep(0.5)
        assert partition.log.flushed_end == 1
        sent = [frame for frame in broker.channel.take() if frames.key_of(frame) is frames.FrameKey.REPORT]
        reports = [report for frame in sent for report in frames.decode_reports(frame)]
        assert reports
        assert not sum(report.size for report in reports)
        await broker.leader_connection.close()

    run(scenario())


def test_a_new_connection_gets_no_credit_for_a_stream_that_was_left_before() -> None:
    async def scenario() -> None:
        broker, data = FollowerFixture(), stamped("v", 0, 1)
        broker.follow(0)
        partition = broker.follow(1)
        await asyncio.sleep(0.2)
        row = next(row for row in broker.asked() if row.partition == 1)
        broker.answer(PushRow(row.stream, PushKind.DATA, 0, 0, len(data)), data=data)
        broker.channel.close()
        await asyncio.sleep(0.01)
        assert partition.following is not None
        broker.leader_connection.leave(partition.following)
        await asyncio.sleep(0.5)
        assert len(broker.dialled) == 2
        assert frames.FrameKey.REPORT not in map(frames.key_of, broker.channel.take())
        await broker.leader_connection.close()

    run(scenario())
