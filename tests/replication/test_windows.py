"""Send windows: the leader bounds the unflushed bytes for each log directory of a follower."""

import asyncio
import random
from collections import Counter, defaultdict

import pytest
from peer_fixture import FollowerFixture, LeaderFixture
from virtual_time import run

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.frames import STREAMS_PER_DIRECTORY, FlushReport, PushKind, PushRow, directory_of
from cordwood.replication.windows import (
    ANSWERS_ON_THE_WAY_MAX,
    PUSH_BYTES,
    WINDOW_BYTES,
    BytesInFlight,
    ImpossibleCredit,
    Push,
    PushWindow,
)
from cordwood.storage.config import LogConfig

MB = 1 << 20


class Sender:
    """A window, with the streams that send through it: each the bytes of a push or part by itself."""

    def __init__(self) -> None:
        self.window = PushWindow()
        self.streams: defaultdict[int, BytesInFlight] = defaultdict(dict)

    def sends(self, size: int, *, stream: int = 1, is_cut: bool = False) -> None:
        """Send to a replica in sync."""
        assert self.window.may_send()
        self._send(self.window.cut or Push(self.window.in_sync), size, stream, is_cut=is_cut)

    def catches_up(self, size: int, *, stream: int = 2) -> None:
        assert self.window.may_catch_up()
        self._send(Push(self.window.catching_up), size, stream)

    def _send(self, push: Push, size: int, stream: int, *, is_cut: bool = False) -> None:
        self.window.sent(push, size, is_cut=is_cut)
        in_flight = self.streams[stream]
        in_flight[push] = in_flight.get(push, 0) + size

    def reported(self, size: int, *, stream: int = 1) -> None:
        self.window.reported(size, self.streams[stream])

    def ends(self, stream: int) -> None:
        self.window.ended(self.streams.pop(stream))

    def ended_reported(self, size: int) -> None:
        self.window.reported(size, self.window.of_ended_streams)

    @property
    def is_open_to(self) -> tuple[bool, bool]:
        """Whether pushes may be sent to replicas in sync, and to others."""
        return self.window.may_send(), self.window.may_catch_up()


def test_a_window_is_bounded_in_bytes_and_in_pushes() -> None:
    sender = Sender()
    sender.sends(WINDOW_BYTES + 1)
    assert sender.is_open_to == (False, False)
    sender.reported(1)
    assert sender.is_open_to == (False, False)
    sender.reported(1)
    assert sender.is_open_to == (True, True)
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        assert sender.is_open_to == (True, True)
        sender.reported(1)
        sender.sends(1)
    assert sender.is_open_to == (False, True)
    sender.catches_up(1)
    assert sender.is_open_to == (False, False)


def test_pushes_to_replicas_that_catch_up_leave_those_in_sync_their_own_and_the_other_way_round() -> None:
    sender = Sender()
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        sender.catches_up(10)
    assert sender.is_open_to == (True, False)
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        sender.sends(1)
    assert sender.is_open_to == (False, False)
    sender.reported(1)
    assert sender.is_open_to == (True, False)
    sender.sends(1)
    sender.reported(9, stream=2)
    assert sender.is_open_to == (False, False)
    sender.reported(1, stream=2)
    assert sender.is_open_to == (False, True)


@pytest.mark.parametrize("is_in_sync_first", [False, True])
def test_a_stream_has_flushed_what_it_was_sent_first_whatever_its_replica_was_then(is_in_sync_first: bool) -> None:
    sender, most = Sender(), ANSWERS_ON_THE_WAY_MAX
    before, since = (sender.sends, sender.catches_up) if is_in_sync_first else (sender.catches_up, sender.sends)
    for send in (before, since):
        for _ in range(most):
            send(10, stream=3)
    sender.reported(10 * most, stream=3)
    assert sender.is_open_to == (is_in_sync_first, not is_in_sync_first)
    sender.reported(10 * (most - 1), stream=3)
    # There is always something in flight of it.
    for _ in range(100):
        since(10, stream=3)
        sender.reported(10, stream=3)
        assert sender.is_open_to == (True, True)


def test_what_a_stream_had_in_flight_when_it_ended_is_reported_later() -> None:
    sender = Sender()
    for number in range(ANSWERS_ON_THE_WAY_MAX):
        sender.catches_up(10, stream=10 + number)
        sender.sends(10, stream=20 + number)
        sender.ends(10 + number)
    assert sender.is_open_to == (False, False)
    sender.ended_reported(10)
    assert sender.is_open_to == (False, True)
    # A stream of an ended one's number has begun since.
    sender.reported(10 * ANSWERS_ON_THE_WAY_MAX, stream=20)
    assert sender.is_open_to == (True, True)
    with pytest.raises(ImpossibleCredit):
        sender.ended_reported(1)


def test_a_push_that_was_cut_goes_on_within_its_bytes_whatever_is_in_flight() -> None:
    sender, part = Sender(), PUSH_BYTES // 4
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        sender.sends(part)
    for parts in range(3):
        sender.sends(part, is_cut=True)
        assert (sender.window.may_send(), sender.window.push_bytes) == (True, (3 - parts) * part)
    sender.sends(part, is_cut=True)
    assert (sender.window.may_send(), sender.window.push_bytes) == (False, PUSH_BYTES)
    sender.reported((ANSWERS_ON_THE_WAY_MAX + 3) * part - 1)
    for _ in range(ANSWERS_ON_THE_WAY_MAX - 1):
        sender.sends(part)
    assert not sender.window.may_send(), "of the push with parts a byte is in flight"
    sender.reported(1)
    assert sender.window.may_send()


def test_a_push_is_in_flight_until_all_its_streams_have_reported_their_bytes() -> None:
    sender = Sender()
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        sender.sends(10, stream=1, is_cut=True)
        sender.sends(10, stream=2)
    sender.reported(10 * ANSWERS_ON_THE_WAY_MAX, stream=1)
    assert not sender.window.may_send()
    sender.reported(9, stream=2)
    assert not sender.window.may_send()
    sender.reported(1, stream=2)
    assert sender.window.may_send()


def test_a_push_that_was_cut_goes_on_after_its_first_part_was_reported() -> None:
    sender = Sender()
    sender.sends(1, is_cut=True)
    sender.reported(1)
    assert (sender.window.may_send(), sender.window.push_bytes) == (True, PUSH_BYTES - 1)
    for _ in range(ANSWERS_ON_THE_WAY_MAX):
        sender.sends(1)
    assert not sender.window.may_send()


@pytest.mark.parametrize(("size", "stream"), [(-1, 1), (101, 1), (1, 2)])
def test_no_more_is_given_back_than_was_taken(size: int, stream: int) -> None:
    sender = Sender()
    sender.sends(100)
    with pytest.raises(ImpossibleCredit):
        sender.reported(size, stream=stream)


def test_whatever_is_sent_and_reported_the_window_holds() -> None:
    """Streams change between the kinds and end; each reports what it was sent in that order, whatever others do."""
    rng, sender = random.Random(1), Sender()
    sent: Counter[int] = Counter()
    ended = 0
    for _ in range(10_000):
        on_the_way = ended + sent.total()
        assert sender.window.credit == WINDOW_BYTES - on_the_way
        stream, size = rng.randrange(6), rng.randrange(1, 2 * MB)
        if rng.random() < 0.5 and sender.window.may_send():
            assert on_the_way < WINDOW_BYTES
            sender.sends(size, stream=stream, is_cut=rng.random() < 0.5)
            sent[stream] += size
        elif rng.random() < 0.5 and sender.window.may_catch_up():
            assert on_the_way < WINDOW_BYTES
            sender.catches_up(size, stream=stream)
            sent[stream] += size
        elif rng.random() < 0.1 and sent[stream]:
            sender.ends(stream)
            ended += sent.pop(stream)
        elif rng.random() < 0.3:
            size = rng.randrange(ended + 1)
            sender.ended_reported(size)
            ended -= size
        else:
            size = rng.randrange(sent[stream] + 1)
            sender.reported(size, stream=stream)
            sent[stream] -= size
    for stream in list(sender.streams):
        sender.reported(sent[stream], stream=stream)
    sender.ended_reported(ended)
    assert sender.is_open_to == (True, True)
    assert not sender.window.of_ended_streams


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
