"""Send windows: the leader bounds the unflushed bytes for each log directory of a follower."""

import asyncio
import random

import pytest
from peer_fixture import FollowerFixture, LeaderFixture
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import STREAMS_PER_DIRECTORY, FlushReport, PushKind, PushRow, directory_of
from cordwood.replication.windows import ANSWERS_ON_THE_WAY_MAX, PUSH_BYTES, WINDOW_BYTES, ImpossibleCredit, PushWindow
from cordwood.storage.config import LogConfig

MB = 1 << 20


def open_to(window: PushWindow) -> tuple[bool, bool]:
    """Return whether pushes may be sent to replicas in sync, and to others."""
    return window.may_send(), window.may_catch_up()


def test_a_window_is_bounded_in_bytes_and_in_pushes() -> None:
    window = PushWindow()
    window.sent(WINDOW_BYTES + 1)
    assert open_to(window) == (False, False)
    window.reported(1)
    assert open_to(window) == (False, False)
    window.reported(1)
    assert open_to(window) == (True, True)
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        window.sent(0)
    assert open_to(window) == (False, True)
    window.caught_up(1)
    assert open_to(window) == (False, False)


def test_pushes_to_replicas_that_catch_up_leave_those_in_sync_their_own_and_the_other_way_round() -> None:
    window = PushWindow()
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        window.caught_up(10)
    assert open_to(window) == (True, False)
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        window.sent(1)
    assert open_to(window) == (False, False)
    window.reported(10)
    assert open_to(window) == (False, True)
    window.reported(10)
    assert open_to(window) == (False, True)
    window.reported(1)
    assert open_to(window) == (True, True)


def test_a_push_that_was_cut_goes_on_within_its_bytes_whatever_is_in_flight() -> None:
    window, part = PushWindow(), PUSH_BYTES // 4
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        window.sent(part)
    for parts in range(3):
        window.sent(part, is_cut=True)
        assert (window.may_send(), window.push_bytes) == (True, (3 - parts) * part)
    window.sent(part, is_cut=True)
    assert (window.may_send(), window.push_bytes) == (False, PUSH_BYTES)
    window.reported((ANSWERS_ON_THE_WAY_MAX + 3) * part - 1)
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        assert window.may_send()
        window.sent(part)
    assert not window.may_send(), "of the push with parts a byte is in flight"
    window.reported(1)
    assert window.may_send()


def test_a_push_that_was_cut_goes_on_after_its_first_part_was_reported() -> None:
    window = PushWindow()
    window.sent(1, is_cut=True)
    window.reported(1)
    assert (window.may_send(), window.push_bytes) == (True, PUSH_BYTES - 1)
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        assert window.may_send()
        window.sent(1)
    assert not window.may_send()


@pytest.mark.parametrize("size", [-1, 101])
def test_no_more_is_given_back_than_was_taken(size: int) -> None:
    window = PushWindow()
    window.sent(100)
    with pytest.raises(ImpossibleCredit):
        window.reported(size)


def test_whatever_is_sent_and_reported_the_window_holds() -> None:
    rng, window, on_the_way = random.Random(1), PushWindow(), 0
    for _ in range(10_000):
        if window.may_send():
            assert on_the_way < WINDOW_BYTES
            size = rng.randrange(1, 2 * MB)
            window.sent(size, is_cut=rng.random() < 0.5)
            on_the_way += size
        if window.may_catch_up() and rng.random() < 0.5:
            assert on_the_way < WINDOW_BYTES
            size = rng.randrange(1, 2 * MB)
            window.caught_up(size)
            on_the_way += size
        size = rng.randrange(on_the_way + 1)
        window.reported(size)
        on_the_way -= size
        assert window.credit == WINDOW_BYTES - on_the_way
    window.reported(on_the_way)
    assert open_to(window) == (True, True)


def stream_in(directory: int, number: int) -> int:
    return directory * STREAMS_PER_DIRECTORY + number


def sizes(rows: list[PushRow]) -> dict[int, int]:
    """Return the bytes by log directory of the follower."""
    found: dict[int, int] = {}
    for row in rows:
        found[directory_of(row.stream)] = found.get(directory_of(row.stream), 0) + row.size
    return found


def test_a_directory_of_the_follower_that_reports_nothing_holds_up_no_other() -> None:
    async def scenario() -> None:
        leader = LeaderFixture(LogConfig(segment_bytes=64 * MB, batch_bytes_max=2 * MB))
        for index in (0, 1):
            leader.lead(index)
            leader.follow(index, stream=stream_in(index, index + 1))
        await leader.turn()
        sent = {0: 0, 1: 0}
        for _ in range(20):
            for index in (0, 1):
                leader.produce("x" * MB, index=index)
            for _ in range(10):
                await asyncio.sleep(0.01)
            found = sizes(leader.rows())
            for directory, size in found.items():
                sent[directory] += size
            if reported := found.get(1, 0):
                leader.send(frames.encode_reports([FlushReport(stream_in(1, 2), -1, reported)]))
        assert sent[1] > 20 * MB
        assert MB <= sent[0] <= WINDOW_BYTES + 2 * MB

    run(scenario())


def test_a_follower_names_the_directory_and_gives_back_what_it_did_not_want_there() -> None:
    async def scenario() -> None:
        broker = FollowerFixture(directories=2)
        partitions = [broker.follow(index) for index in range(4)]
        await asyncio.sleep(0.2)
        asked = broker.asked()
        assert [directory_of(row.stream) for row in asked] == [each.directory.number for each in partitions]
        assert {directory_of(row.stream) for row in asked} == {0, 1}
        assert len({row.stream for row in asked}) == 4
        # Another broker leads now. The follower drops pushes of the former leader.
        for partition in partitions:
            partition.assigned(Assignment(9, 2, 2, (1, 9), frozenset({1, 9}), 1))
        data = batch_of("a")
        for row in asked:
            broker.answer(PushRow(row.stream, PushKind.DATA, 0, 0, len(data)), data=data)
        await asyncio.sleep(0.2)
        reports = [
            row
            for frame in broker.channel.take()
            if frames.key_of(frame) is frames.FrameKey.REPORT
            for row in frames.decode_reports(frame)
        ]
        given_back = {0: 0, 1: 0}
        for report in reports:
            assert report.stream % STREAMS_PER_DIRECTORY == 0
            given_back[directory_of(report.stream)] += report.size
        assert given_back == {0: 2 * len(data), 1: 2 * len(data)}
        await broker.leader_connection.close()

    run(scenario())
