"""Record encoding and decoding. Produce, Fetch and replication do not decode records: they pass batches on as bytes."""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from cordwood.storage.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_SEQUENCE,
    Compression,
    check,
)
from cordwood.storage.budget import UNPACKED_BYTES_MAX
from cordwood.storage.decompression import FRONT_BYTES, GROWTH, XERIAL_MAGIC, Body, Content, unpack
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_PRODUCER_ID

_HEADER = struct.Struct(">qiibIhiqqqhii")
KEPT_BYTES_MAX = 1 << 20
"""Decompressed bytes that a paused reader of a batch keeps in memory."""

SMALL = 1024
"""Varints below this are encoded in advance: lengths and deltas within a batch hardly ever exceed it."""

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record. `timestamp` in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def encode(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    attributes: int = 0,
    base_timestamp: int | None = None,
) -> bytes:
    """Return one batch of `records`, with consecutive offsets from `base_offset` on.

    The base timestamp is that of the first record if it is None.
    """
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp if base_timestamp is None else base_timestamp
    body: list[bytes] = []
    for delta, record in enumerate(records):
        front = _front(record, delta, record.timestamp - base_timestamp)
        value, headers = record.value or b"", _headers(record)
        body += (varint(len(front) + len(value) + len(headers)), front, value, headers)
    # A value of a coordinator may have many megabytes: it is copied here, and once more with the header.
    packed = b"".join(body)
    if compression is not Compression.NONE:
        packed = compress(compression, packed)
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(packed)
    head = bytearray(
        _HEADER.pack(
            base_offset, length, leader_epoch, MAGIC, 0, attributes | compression, len(records) - 1, base_timestamp,
            max(record.timestamp for record in records), producer_id, producer_epoch, base_sequence, len(records),
        )
    )  # fmt: skip
    struct.pack_into(">I", head, 17, crc32c(packed, crc32c(memoryview(head)[CRC_COVERS_FROM:])))
    return b"".join((head, packed))


class LargeRecord(CorruptBatch):
    """A record larger than its reader accepts. The record is not decoded; a reader with a larger limit may go on."""


class RecordCursor:
    """Iterator over the records of one batch, which is decompressed only as far as needed.

    A reader may stop anywhere and resume later; in between, `rest` frees the decompressed bytes of a large batch.
    """

    def __init__(self, batch: bytes, start: int = 0) -> None:
        """Skip records with offsets below `start`. Raises CorruptBatch."""
        self._batch, self._header, self._start = batch, check(batch), start
        self.record_bytes_max = UNPACKED_BYTES_MAX
        self.unpacked_bytes_max = FRONT_BYTES
        """Size of the decompression buffer; it grows as needed."""
        self._body: Body | None = None
        self._place, self._delta, self.left = 0, -1, self._header.record_count

    @property
    def end(self) -> int:
        """Offset after the batch's last record."""
        return self._header.end

    @property
    def next_offset(self) -> int:
        """Offset after the last record that was read or skipped; `end` after the batch's last record."""
        return self._header.base_offset + self._delta + 1 if self.left else self.end

    def rest(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        """Free the decompressed bytes if they are more than that: to resume, the batch is decompressed again."""
        if self._body is not None and len(self._body.content) > kept_bytes_max:
            self._body = None

    def records(self) -> Iterator[Record]:
        """Yield the remaining records. Raises CorruptBatch, also past UNPACKED_BYTES_MAX, and LargeRecord."""
        for content, place, record_end, offset, timestamp in self._frames():
            try:
                record, end = _decode_record(content, place, offset, timestamp)
            except (IndexError, UnicodeDecodeError) as error:
                raise CorruptBatch(f"the record of offset {offset} is malformed: {error}") from error
            if end != record_end:
                raise CorruptBatch(f"a record of {end - place} bytes, but only {record_end - place} bytes remain")
            yield record

    def times(self) -> Iterator[tuple[int, int]]:
        """Yield offset and timestamp of each remaining record. Raises as `records`."""
        for _, _, _, offset, timestamp in self._frames():
            yield offset, timestamp

    def _frames(self) -> Iterator[tuple[Content, int, int, int, int]]:
        """Yield the content, the positions of the key's length and of the record's end, offset and timestamp."""
        header = self._header
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        while self.left:
            content, place, record_end = self._next()
            try:
                time_delta, place = _read_varint(content, place + 1)
                delta, place = _read_varint(content, place)
            except IndexError as error:
                raise CorruptBatch("a malformed record") from error
            if not self._delta < delta <= header.last_offset_delta:
                raise CorruptBatch(f"an offset delta of {delta} after one of {self._delta}")
            self._place, self._delta, self.left = record_end, delta, self.left - 1
            offset = header.base_offset + delta
            if offset >= self._start:
                timestamp = header.base_timestamp + time_delta if append_time is None else append_time
                yield content, place, record_end, offset, timestamp
        body = self._unpacked()
        if self._place != body.end or not body.is_whole:
            raise CorruptBatch(f"{body.end - self._place} bytes or more after the last record")

    def _next(self) -> tuple[Content, int, int]:
        """Return the content, and the begin (after the length) and the end of the next record in it."""
        while True:
            body = self._body or self._unpacked()
            try:
                length, place = _read_varint(body.content, self._place)
                if length > self.record_bytes_max:
                    raise LargeRecord(f"a record of {length} bytes: the limit is {self.record_bytes_max}")
                if 0 <= length <= body.end - place:
                    return body.content, place, place + length
            except IndexError:
                pass
            if body.is_whole:
                raise CorruptBatch(f"{self.left} more records in {body.end - self._place} bytes")
            if self.unpacked_bytes_max == UNPACKED_BYTES_MAX:
                raise CorruptBatch(f"a batch that decompresses to more than {UNPACKED_BYTES_MAX >> 20} MiB")
            self.unpacked_bytes_max = min(GROWTH * self.unpacked_bytes_max, UNPACKED_BYTES_MAX)
            self._body = None

    def _unpacked(self) -> Body:
        if self._body is None:
            self._body = unpack(self._batch, self._header, self.unpacked_bytes_max)
        return self._body


def decode(batch: bytes) -> list[Record]:
    """Return the records of one batch with absolute offsets and timestamps. Raises CorruptBatch.

    For batches of this broker and for tests: memory grows with the number of records.
    """
    return list(RecordCursor(batch).records())


def _front(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode what a record has between its length and its value."""
    _, _, key, value, _ = record
    return b"".join(
        (
            b"\x00",
            varint(timestamp_delta),
            varint(offset_delta),
            b"\x01" if key is None else varint(len(key)) + key,
            b"\x01" if value is None else varint(len(value)),
        )
    )


def _headers(record: Record) -> bytes:
    """Encode what a record has after its value."""
    if not record.headers:
        return b"\x00"
    fields = [varint(len(record.headers))]
    for name, content in record.headers:
        fields += (_varint_bytes(name.encode()), _varint_bytes(content))
    return b"".join(fields)


def _decode_record(body: Content, position: int, offset: int, timestamp: int) -> tuple[Record, int]:
    """Decode a record from `position`, after its deltas. Return the record and its end. Raises CorruptBatch."""
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    count, position = _read_varint(body, position)
    headers: list[Header] = []
    if count < 0:
        raise CorruptBatch(f"{count} headers")
    for _ in range(count):
        name, position = _read_bytes(body, position)
        content, position = _read_bytes(body, position)
        if name is None:
            raise CorruptBatch("a header without a name")
        headers.append((name.decode(), content))
    return Record(offset, timestamp, key, value, tuple(headers)), position


def varint(number: int) -> bytes:
    """Encode `number` as a zigzag varint: seven bits per byte, the lowest first."""
    return _SMALL_VARINTS[number] if 0 <= number < SMALL else _large_varint(number)


def _large_varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL_VARINTS = tuple(map(_large_varint, range(SMALL)))


def _varint_bytes(content: bytes | None) -> bytes:
    return b"\x01" if content is None else varint(len(content)) + content


def _read_varint(body: Content, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch("a number of more than 64 bits")


def _read_bytes(body: Content, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(body, position)
    if length < 0:
        return None, position
    if position + length > len(body):
        raise CorruptBatch(f"a field of {length} bytes, but only {len(body) - position} bytes remain")
    return bytes(body[position : position + length]), position + length


def compress(compression: Compression, body: Bytes) -> bytes:
    """Return the records of a batch as this codec packs them."""
    match compression:
        case Compression.NONE:
            return bytes(body)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(body))
        case Compression.SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(body))
            return XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(block)) + block
        case Compression.LZ4:
            # Like Kafka's clients: fast. The default would take ten times as long.
            return bytes(cramjam.lz4.compress(body, level=1))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(body))
