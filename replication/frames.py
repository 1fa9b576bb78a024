"""Wire format of the replication protocol between brokers.

A follower opens the connection to a leader's Kafka port, like any client, and the frames have Kafka's shape: a length,
then an API key out of a range that Kafka does not use. Frames have no responses of their own (docs/adr/0012):

    follower → leader   OPEN     introduction: broker, incarnation and cluster
                        FOLLOW   request for a partition from an offset on, under a stream number of the follower's
                        LEAVE    streams that are no longer wanted
                        REPORT   flushed end of each stream
                        START    log start offset on disk, after records were deleted
                        SUSPECT  a batch that arrived, and is not what the leader's log should hold
    leader → follower   PUSH     batches and high watermarks, or a refusal, for any of the streams

For repairs, any replica is asked on a connection of its own, one request after the other (docs/adr/0023):

    replica → replica   READ     introduction, and the range of committed batches that is wanted
    replica → replica   PUSH     one row: batches, or a refusal
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID


class FrameKey(IntEnum):
    """The API keys of the replication protocol."""

    OPEN = 1000
    FOLLOW = 1001
    LEAVE = 1002
    REPORT = 1003
    SUSPECT = 1004
    PUSH = 1005
    START = 1006
    READ = 1007


_KEYS = {key.value: key for key in FrameKey}
FIRST_KEY_BYTE = FrameKey.OPEN >> 8
"""First byte of the lowest key. Kafka's API keys begin with lower bytes."""

STREAMS_PER_DIRECTORY = 1 << 24
"""A stream's number divided by this is the number of the follower's log directory with the partition.

Brokers without this rule use small numbers: for their leaders, all their partitions are in directory 0.
"""
DIRECTORIES_MAX = 128
FOLLOWED_MAX = 1 << 18
"""Partitions that a broker may follow at one leader: some 100 bytes of memory each."""

OFFSET_MAX = 1 << 62
"""The highest offset of a push. A log that began near 2^63 would have no offsets for its records."""

VERSION = 2
ROWS_MAX = (1 << 31) - 1

_HEAD = struct.Struct(">hhi")
"""API key, version, number of rows. The length comes before them."""
_LENGTH = struct.Struct(">i")
_OPEN = struct.Struct(">i16sqB")
_FOLLOW = struct.Struct(">i16siiqiqq")
_LEAVE = struct.Struct(">i")
_REPORT = struct.Struct(">iqi")
_START = _SUSPECT = struct.Struct(">iq")
_PUSH = struct.Struct(">ibqqi")
_READ = struct.Struct(">16siqi")
_ROWS: Mapping[int, struct.Struct] = {
    FrameKey.FOLLOW: _FOLLOW,
    FrameKey.LEAVE: _LEAVE,
    FrameKey.REPORT: _REPORT,
    FrameKey.START: _START,
}
"""Rows of the frames of a follower that may have any number of them."""


class MalformedFrame(Exception):
    """Bytes that are not a frame of this protocol."""


class Open(NamedTuple):
    """Introduction of a follower. The metadata log gave `broker_epoch` to this incarnation."""

    broker_id: int
    incarnation: UUID
    broker_epoch: int
    cluster_id: str


class FollowRequest(NamedTuple):
    """Request for a partition from `log_end` on. Its last record is of `last_epoch`; `flushed_end` is on disk.

    `log_start` is the log start offset that the follower has on disk.
    """

    stream: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    log_end: int
    last_epoch: int
    flushed_end: int
    log_start: int = 0


class ReadRequest(NamedTuple):
    """Request for committed batches from the one with `offset` on: `size` bytes, and at least one batch.

    A size of 0 also asks the replica to compact its log. The answer has the high watermark and the clean end.
    """

    topic_id: UUID
    partition: int
    offset: int
    size: int


class FlushReport(NamedTuple):
    """Flushed end of a follower's log, and `size` bytes of credit for the leader's window."""

    stream: int
    flushed_end: int
    size: int


class Start(NamedTuple):
    """Log start offset that the follower has on disk."""

    stream: int
    log_start: int


class Suspect(NamedTuple):
    """Report of an unsound batch that arrived for `offset` on this stream."""

    stream: int
    offset: int


class PushKind(IntEnum):
    """Kind of a row of a PUSH."""

    DATA = 0
    """`first` is the high watermark, `second` the log start offset; `size` bytes of batches follow in the data part."""
    DIFFERS = 1
    """The follower's log diverges: `first` is an epoch, `second` is where that epoch ends in the leader's log."""
    TOO_OLD = 2
    """The leader's disk has nothing before `second`, where a batch begins; `first` offsets before it are archived.

    Without any, the batch contains the log start offset.
    """
    REFUSED = 3
    """The broker does not lead this partition in that epoch, or not yet. Ask again when the metadata has changed."""
    DATA_WITH_GAPS = 4
    """As DATA. The batches are of a segment that was compacted: between them offsets may be without a record."""


_PUSH_KINDS = range(len(PushKind))


class PushRow(NamedTuple):
    """One stream's part of a PUSH; PushKind defines the numbers."""

    stream: int
    kind: int
    first: int
    second: int
    size: int = 0


def directory_of(stream: int) -> int:
    """Return the number of the follower's log directory that a stream is for."""
    return stream // STREAMS_PER_DIRECTORY % DIRECTORIES_MAX


def encode_open(hello: Open) -> bytes:
    return _frame(FrameKey.OPEN, 1, _pack_hello(hello))


def decode_open(frame: memoryview) -> Open:
    """Decode an OPEN frame. Raises MalformedFrame."""
    return _unpack_hello(frame, _HEAD.size)


def encode_read(hello: Open, read: ReadRequest) -> bytes:
    return _frame(FrameKey.READ, 1, _READ.pack(read.topic_id.bytes, *read[1:]) + _pack_hello(hello))


def decode_read(frame: memoryview) -> tuple[Open, ReadRequest]:
    """Decode a READ frame. Raises MalformedFrame."""
    if len(frame) < _HEAD.size + _READ.size:
        raise MalformedFrame("a request that is too short")
    topic_id, *rest = _READ.unpack_from(frame, _HEAD.size)
    return _unpack_hello(frame, _HEAD.size + _READ.size), ReadRequest(UUID(bytes=topic_id), *rest)


def _pack_hello(hello: Open) -> bytes:
    cluster_id = hello.cluster_id.encode()
    return _OPEN.pack(hello.broker_id, hello.incarnation.bytes, hello.broker_epoch, len(cluster_id)) + cluster_id


def _unpack_hello(frame: memoryview, position: int) -> Open:
    try:
        broker_id, incarnation, broker_epoch, length = _OPEN.unpack_from(frame, position)
        if len(frame) != position + _OPEN.size + length:
            raise MalformedFrame("an introduction of the wrong length")
        cluster_id = bytes(frame[position + _OPEN.size :])
        return Open(broker_id, UUID(bytes=incarnation), broker_epoch, cluster_id.decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedFrame(f"a malformed introduction: {error}") from None


def encode_follow(rows: Iterable[FollowRequest]) -> bytes:
    packed = [_FOLLOW.pack(row[0], row[1].bytes, *row[2:]) for row in rows]
    return _frame(FrameKey.FOLLOW, len(packed), b"".join(packed))


def decode_follow(frame: memoryview) -> list[FollowRequest]:
    """Decode a FOLLOW frame. Raises MalformedFrame."""
    if _head(frame)[2] > FOLLOWED_MAX:
        raise MalformedFrame(f"more than {FOLLOWED_MAX} partitions")
    return [FollowRequest(row[0], UUID(bytes=row[1]), *row[2:]) for row in _rows(frame, _FOLLOW)]


def encode_leave(streams: Iterable[int]) -> bytes:
    packed = [_LEAVE.pack(stream) for stream in streams]
    return _frame(FrameKey.LEAVE, len(packed), b"".join(packed))


def decode_leave(frame: memoryview) -> list[int]:
    """Decode a LEAVE frame. Raises MalformedFrame."""
    return [stream for (stream,) in _rows(frame, _LEAVE)]


def encode_reports(rows: Iterable[FlushReport]) -> bytes:
    packed = [_REPORT.pack(*row) for row in rows]
    return _frame(FrameKey.REPORT, len(packed), b"".join(packed))


def decode_reports(frame: memoryview) -> list[FlushReport]:
    """Decode a REPORT frame. Raises MalformedFrame."""
    return [FlushReport(*row) for row in _rows(frame, _REPORT)]


def encode_starts(rows: Iterable[Start]) -> bytes:
    packed = [_START.pack(*row) for row in rows]
    return _frame(FrameKey.START, len(packed), b"".join(packed))


def decode_starts(frame: memoryview) -> list[Start]:
    """Decode a START frame. Raises MalformedFrame."""
    return [Start(*row) for row in _rows(frame, _START)]


def encode_suspect(suspect: Suspect) -> bytes:
    return _frame(FrameKey.SUSPECT, 1, _SUSPECT.pack(*suspect))


def decode_suspect(frame: memoryview) -> Suspect:
    """Decode a SUSPECT frame. Raises MalformedFrame."""
    rows = _rows(frame, _SUSPECT)
    if len(rows) != 1:
        raise MalformedFrame("a complaint that is not about exactly one batch")
    return Suspect(*rows[0])


def encode_push(rows: list[PushRow], size: int) -> bytes:
    """Encode a PUSH frame, its length included, up to the `size` bytes of data that the rows describe."""
    packed = b"".join([_PUSH.pack(*row) for row in rows])
    return _LENGTH.pack(_HEAD.size + len(packed) + size) + _HEAD.pack(FrameKey.PUSH, VERSION, len(rows)) + packed


def decode_push(
    frame: memoryview, first: int = 0, rows_max: int = ROWS_MAX, data_before: int = 0
) -> list[tuple[PushRow, memoryview]]:
    """Decode a PUSH frame: each row with its data. Raises MalformedFrame.

    Of a part of it, `first` is the first row, after `data_before` bytes of data of the rows before.
    """
    key, version, count = _head(frame)
    if key != FrameKey.PUSH or version != VERSION:
        raise MalformedFrame(f"frame {key} in version {version}, but batches were expected")
    position = _HEAD.size + count * _PUSH.size
    if position > len(frame):
        raise MalformedFrame(f"{count} rows in a frame of {len(frame)} bytes")
    rows = frame[_HEAD.size : position][first * _PUSH.size : (first + rows_max) * _PUSH.size]
    position += data_before
    found = []
    for row in _PUSH.iter_unpack(rows):
        pushed = PushRow(*row)
        end = position + pushed.size
        if pushed.kind not in _PUSH_KINDS:
            raise MalformedFrame(f"a row of kind {pushed.kind}")
        if pushed.first > OFFSET_MAX or pushed.second > OFFSET_MAX:
            raise MalformedFrame(f"an offset of {max(pushed.first, pushed.second)}")
        if pushed.size < 0 or end > len(frame):
            raise MalformedFrame(f"{pushed.size} bytes of batches, but only {len(frame) - position} bytes remain")
        found.append((pushed, frame[position:end]))
        position = end
    return found


def split_push(frame: memoryview, rows_max: int) -> Iterator[list[tuple[PushRow, memoryview]]]:
    """Yield the rows of a PUSH frame, at most `rows_max` at a time, as `decode_push`. Raises MalformedFrame."""
    first = data_before = 0
    while rows := decode_push(frame, first, rows_max, data_before):
        yield rows
        first += rows_max
        data_before += sum(row.size for row, _ in rows)


def has_more_rows(frame: memoryview, rows_max: int) -> bool:
    """Return whether a frame of a follower has more rows than these, and can be split. Raises MalformedFrame."""
    key, _, count = _head(frame)
    return count > rows_max and key in _ROWS


def split(frame: memoryview, rows_max: int) -> Iterator[memoryview]:
    """Yield a frame of many rows as several frames of at most `rows_max` rows. Raises MalformedFrame."""
    key, version, count = _head(frame)
    row = _ROWS[key]
    if _HEAD.size + count * row.size != len(frame):
        raise MalformedFrame(f"{count} rows in a frame of {len(frame)} bytes")
    size = rows_max * row.size
    for start in range(_HEAD.size, len(frame), size):
        rows = bytes(frame[start : start + size])
        yield memoryview(_HEAD.pack(key, version, len(rows) // row.size) + rows)


def key_of(frame: memoryview) -> FrameKey:
    """Return the key of a frame. Raises MalformedFrame."""
    key, version, _ = _head(frame)
    if version != VERSION:
        raise MalformedFrame(f"replication protocol {version}, but this broker uses {VERSION}")
    try:
        return _KEYS[key]
    except KeyError:
        raise MalformedFrame(f"API {key}, which is not part of the replication protocol") from None


def _head(frame: memoryview) -> tuple[int, int, int]:
    if len(frame) < _HEAD.size:
        raise MalformedFrame(f"a frame of {len(frame)} bytes")
    key, version, count = _HEAD.unpack_from(frame)
    if count < 0:
        raise MalformedFrame(f"{count} rows")
    return key, version, count


def _frame(key: FrameKey, count: int, rows: bytes) -> bytes:
    return _LENGTH.pack(_HEAD.size + len(rows)) + _HEAD.pack(key, VERSION, count) + rows


def _rows(frame: memoryview, row: struct.Struct) -> list[tuple]:  # type: ignore[type-arg]
    _, _, count = _head(frame)
    if _HEAD.size + count * row.size != len(frame):
        raise MalformedFrame(f"{count} rows in a frame of {len(frame)} bytes")
    return list(row.iter_unpack(frame[_HEAD.size :]))
