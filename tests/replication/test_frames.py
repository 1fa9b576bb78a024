"""Frames of the replication protocol: encoding, decoding, and refusal of malformed frames."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.replication import frames
from cordwood.replication.frames import (
    FlushReport,
    FollowRequest,
    FrameKey,
    MalformedFrame,
    Open,
    PushKind,
    PushRow,
    ReadRequest,
    Start,
    Suspect,
)

HELLO = Open(7, UUID(int=9), 41, "cluster-ä")
FOLLOW = FollowRequest(3, UUID(int=1), 2, 5, 1 << 40, 4, 77)


def body(frame: bytes) -> memoryview:
    """Return the frame without its length, as a connection passes it on. The length must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


def test_every_frame_comes_back() -> None:
    assert frames.decode_open(body(frames.encode_open(HELLO))) == HELLO
    assert frames.decode_follow(body(frames.encode_follow([FOLLOW, FOLLOW]))) == [FOLLOW, FOLLOW]
    assert frames.decode_leave(body(frames.encode_leave([1, 2]))) == [1, 2]
    reports = [FlushReport(1, -1, 5), FlushReport(2, 1 << 50, 0)]
    assert frames.decode_reports(body(frames.encode_reports(reports))) == reports
    starts = [Start(1, 7), Start(2, 1 << 50)]
    assert frames.decode_starts(body(frames.encode_starts(starts))) == starts
    assert frames.decode_suspect(body(frames.encode_suspect(Suspect(1, 2)))) == Suspect(1, 2)
    read = ReadRequest(UUID(int=1), 2, 1 << 40, 1 << 20)
    assert frames.decode_read(body(frames.encode_read(HELLO, read))) == (HELLO, read)


def test_a_push_gives_each_row_its_bytes() -> None:
    rows = [PushRow(1, PushKind.DATA, 10, 0, 3), PushRow(2, PushKind.DIFFERS, 4, 9), PushRow(3, PushKind.DATA, 1, 0, 2)]
    found = frames.decode_push(body(frames.encode_push(rows, 5) + b"abcde"))
    assert [(row, bytes(data)) for row, data in found] == [(rows[0], b"abc"), (rows[1], b""), (rows[2], b"de")]


def test_the_keys_are_out_of_kafkas_range() -> None:
    for key in FrameKey:
        assert frames.encode_leave([1])[4] >= frames.FIRST_KEY_BYTE
        assert int(key) >> 8 >= frames.FIRST_KEY_BYTE


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_frame_that_is_cut_short_is_refused(cut: int) -> None:
    whole = body(frames.encode_follow([FOLLOW]))
    with pytest.raises(MalformedFrame):
        frames.decode_follow(whole[: len(whole) - cut])


def test_more_bytes_than_the_frame_has_are_refused() -> None:
    with pytest.raises(MalformedFrame):
        frames.decode_push(body(frames.encode_push([PushRow(1, PushKind.DATA, 0, 0, 2)], 2) + b"ab")[:-1])


@given(st.binary(min_size=8, max_size=200))
def test_noise_is_refused_or_read_and_never_anything_worse(noise: bytes) -> None:
    frame = memoryview(noise)
    for decode in (
        frames.key_of,
        frames.decode_open,
        frames.decode_read,
        frames.decode_follow,
        frames.decode_leave,
        frames.decode_reports,
        frames.decode_suspect,
        frames.decode_push,
    ):
        try:
            decode(frame)
        except MalformedFrame:
            continue


PUSH_ROWS = [PushRow(stream, PushKind.DATA, 10, 0, stream) for stream in range(7)]


@pytest.mark.parametrize("rows_max", range(1, 9))
def test_a_push_in_parts_has_the_same_rows(rows_max: int) -> None:
    frame = body(frames.encode_push(PUSH_ROWS, 21) + bytes(range(21)))
    parts = list(frames.split_push(frame, rows_max))
    assert [row for part in parts for row in part] == frames.decode_push(frame)
    assert {len(part) for part in parts[:-1]} <= {rows_max}


@pytest.mark.parametrize("cut", [1, 22, 190])
def test_a_push_that_is_cut_short_is_refused_in_its_last_part(cut: int) -> None:
    frame = body(frames.encode_push(PUSH_ROWS, 21) + bytes(range(21)))
    with pytest.raises(MalformedFrame):
        list(frames.split_push(frame[:-cut], 2))
