"""Kafka's RecordBatch v2: header layout, CRC-32C check, and the stamp of base offset and leader epoch.

Layout (KIP-98, big-endian): base offset i64, length i32, leader epoch i32, magic i8, CRC-32C u32, attributes i16, last
offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer epoch i16, base sequence i32, record
count i32, records. The checksum covers everything after itself, so a leader stamps the base offset and its epoch into
the first 16 bytes without a change to the rest.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
STAMP_BYTES = 16
"""Size of what a leader sets: base offset, length and leader epoch."""
CRC_AT, CRC_COVERS_FROM = 17, 21
MAX_TIMESTAMP_AT = 35
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
ATTRIBUTES_BYTE = 22
"""Position of the lower byte of a batch's attributes, which has all of these."""
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp is the time from which on the log cleaner removes tombstones and markers (ADR 39)."""

NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_unpack_header = _HEADER.unpack_from
_new = tuple.__new__
_CRC = struct.Struct(">I")
_TIME = struct.Struct(">q")
_unpack_length = struct.Struct(">i").unpack_from
_LENGTH_AT = 8


class Compression(IntEnum):
    """Compression codec: the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The 61-byte header of a batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return LENGTH_PREFIX_BYTES + self.length

    @property
    def end(self) -> int:
        """Offset after the batch's last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequence numbers wrap to 0 after 2³¹-1."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


def peek(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the unchecked header at `position`. Raises CorruptBatch if fewer than 61 bytes remain."""
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(f"{len(data) - position} bytes, but a batch header has {HEADER_BYTES}")
    # `_make` would count the fields again for every batch.
    return _new(BatchHeader, _unpack_header(data, position))


def check(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the header at `position` after a check of magic, length and CRC-32C. Raises CorruptBatch."""
    remain = len(data) - position
    if remain < HEADER_BYTES:
        raise CorruptBatch(f"{remain} bytes, but a batch header has {HEADER_BYTES}")
    header = _new(BatchHeader, _unpack_header(data, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} instead of {MAGIC}")
    size = LENGTH_PREFIX_BYTES + header.length
    if not HEADER_BYTES <= size <= remain:
        raise CorruptBatch(f"a length of {header.length}, but only {remain - LENGTH_PREFIX_BYTES} bytes remain")
    crc = crc32c(memoryview(data)[position + CRC_COVERS_FROM : position + size])
    if crc != header.crc:
        raise CorruptBatch(f"CRC-32C {crc:#010x} where the header has {header.crc:#010x}")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch("a negative record count")
    return header


def headers(data: Bytes) -> list[BatchHeader]:
    """Return the headers of all batches in `data`, each checked. Raises CorruptBatch."""
    found, position = [], 0
    while position < len(data):
        header = check(data, position)
        found.append(header)
        position += header.size
    return found


def check_ascending(batches: Sequence[BatchHeader], log_end: int) -> tuple[int, bool]:
    """Check the offsets of batches that follow a log's end. Return all their attributes, and whether there are gaps.

    Raises CorruptBatch if an offset is below the end of the batch before.
    """
    due, attributes, has_gaps = log_end, 0, False
    for header in batches:
        if header.base_offset < due:
            raise CorruptBatch(f"offset {header.base_offset}, but at least {due} was expected")
        has_gaps |= header.base_offset > due
        due = header.end
        attributes |= header.attributes
    return attributes, has_gaps


def end_of(batches: Bytes) -> int:
    """Return the offset after the last of one or more whole batches, which have been verified."""
    position = 0
    while position < len(batches):
        header = peek(batches, position)
        position += header.size
    return header.end


def in_groups(batches: Sequence[BatchHeader], bytes_max: int) -> Iterator[Sequence[BatchHeader]]:
    """Yield groups of batches that are written together to one segment: at most `bytes_max`, or one larger batch."""
    first = size = 0
    for at, header in enumerate(batches):
        if at > first and size + header.size > bytes_max:
            yield batches[first:at]
            first, size = at, 0
        size += header.size
    if batches:
        yield batches[first:]


def in_parts(data: memoryview, batches_max: int, bytes_max: int) -> Iterator[tuple[memoryview, int]]:
    """Yield `data` in parts of whole batches, and the number of batches of each; no data is one part without any.

    A part has at most `batches_max` batches and `bytes_max` bytes, or one larger batch. The lengths in the headers are
    not checked: what follows one that cannot be is in the same part.
    """
    start = end = batches = 0
    while len(data) - end >= HEADER_BYTES:
        size = LENGTH_PREFIX_BYTES + _unpack_length(data, end + _LENGTH_AT)[0]
        if not HEADER_BYTES <= size <= len(data) - end:
            break
        if batches == batches_max or (batches and end + size - start > bytes_max):
            yield data[start:end], batches
            start, batches = end, 0
        end += size
        batches += 1
    yield data[start:], batches


def stamp(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """Return the first STAMP_BYTES of the batch with this base offset and leader epoch; the rest stays unchanged."""
    return _STAMP.pack(base_offset, header.length, leader_epoch)


def with_append_time(batch: Bytes, now_ms: int) -> bytes:
    """Return the batch with `now_ms` as every record's timestamp (`message.timestamp.type=LogAppendTime`)."""
    changed = bytearray(batch)
    changed[ATTRIBUTES_BYTE] |= LOG_APPEND_TIME
    _TIME.pack_into(changed, MAX_TIMESTAMP_AT, now_ms)
    put_checksum(changed, 0, len(changed))
    return bytes(changed)


def put_checksum(data: bytearray, begin: int, end: int) -> None:
    """Set the CRC-32C of the batch from `begin` to `end`."""
    with memoryview(data) as view:
        _CRC.pack_into(data, begin + CRC_AT, crc32c(view[begin + CRC_COVERS_FROM : end]))


def split(data: bytes) -> Iterator[bytes]:
    """Yield the batches of `data`, each checked. Raises CorruptBatch at the first that is not whole."""
    position = 0
    while position < len(data):
        size = check(data, position).size
        yield data[position : position + size]
        position += size
