"""What is inside a batch: its records, packed and unpacked. Never used on the way of a produce or a fetch."""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from cordwood.storage.batch import (
    CODEC_MASK,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    Compression,
    check,
)
from cordwood.storage.errors import CorruptBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
UNPACKED_BYTES_MAX = 64 << 20
"""A batch that unpacks to more is refused: nobody's topic allows a batch near this size."""

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, key, value and header count: a byte each."""

SMALL = 1024
"""Numbers below are packed once and for all: lengths and distances within a batch hardly ever exceed it."""

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `timestamp` in milliseconds since 1970."""

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
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    attributes: int = 0,
) -> bytes:
    """One batch of `records`, whose offsets are taken by their order from `base_offset` on."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    body: list[bytes] = []
    for delta, record in enumerate(records):
        one = _encode_record(record, delta, record.timestamp - base_timestamp)
        body += (_varint(len(one)), one)
    packed = _compress(compression, b"".join(body))
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(packed)
    batch = bytearray(
        _HEADER.pack(
            base_offset, length, leader_epoch, MAGIC, 0, attributes | compression, len(records) - 1, base_timestamp,
            max(record.timestamp for record in records), producer_id, producer_epoch, base_sequence, len(records),
        )
    )  # fmt: skip
    batch += packed
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
    return bytes(batch)


def decode(batch: bytes) -> list[Record]:
    """The records of one batch, absolute offsets and timestamps filled in. Raises CorruptBatch."""
    header = check(batch)
    codec = header.attributes & CODEC_MASK
    if codec > Compression.ZSTD:
        raise CorruptBatch(f"unknown codec {codec}")
    body = _decompress(Compression(codec), batch[HEADER_BYTES : header.size])
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    if header.record_count > len(body) // RECORD_BYTES_MIN:
        raise CorruptBatch(f"{header.record_count} records in {len(body)} bytes")
    records, position = [], 0
    try:
        for _ in range(header.record_count):
            length, position = _read_varint(body, position)
            record, end = _decode_record(body, position, header.base_offset, header.base_timestamp)
            if end != position + length:
                raise CorruptBatch(f"a record of {end - position} bytes that claims {length}")
            records.append(record if append_time is None else record._replace(timestamp=append_time))
            position = end
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a record that does not parse: {error}") from error
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes behind the last record")
    return records


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    _, _, key, value, headers = record
    parts = [
        b"\x00",
        _varint(timestamp_delta),
        _varint(offset_delta),
        b"\x01" if key is None else _varint(len(key)) + key,
        b"\x01" if value is None else _varint(len(value)) + value,
        _varint(len(headers)),
    ]
    for name, content in headers:
        parts += (_varint_bytes(name.encode()), _varint_bytes(content))
    return b"".join(parts)


def _decode_record(body: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    timestamp_delta, position = _read_varint(body, position + 1)
    offset_delta, position = _read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    count, position = _read_varint(body, position)
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        content, position = _read_bytes(body, position)
        headers.append(((name or b"").decode(), content))
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, tuple(headers)), position


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
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
    return b"\x01" if content is None else _varint(len(content)) + content


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
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


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(body, position)
    if length < 0:
        return None, position
    if position + length > len(body):
        raise CorruptBatch(f"a field of {length} bytes where {len(body) - position} remain")
    return body[position : position + length], position + length


def _compress(compression: Compression, body: bytes) -> bytes:
    match compression:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(body))
        case Compression.SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(body))
            return _XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(block)) + block
        case Compression.LZ4:
            return bytes(cramjam.lz4.compress(body))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(body))


def _decompress(compression: Compression, packed: bytes) -> bytes:
    try:
        match compression:
            case Compression.NONE:
                return packed
            case Compression.SNAPPY:
                return _decompress_snappy(packed)
            case Compression.GZIP:
                return _decompress_bounded(cramjam.gzip.decompress_into, packed)
            case Compression.LZ4:
                return _decompress_bounded(cramjam.lz4.decompress_into, packed)
            case Compression.ZSTD:
                return _decompress_bounded(cramjam.zstd.decompress_into, packed)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{compression.name.lower()} data that does not unpack: {error}") from error


def _decompress_bounded(decompress_into: Callable[[bytes, bytearray], int], packed: bytes) -> bytes:
    """Unpacks into ever larger buffers, so that a small batch cannot claim more memory than the limit."""
    room = max(4096, 8 * len(packed))
    while True:
        buffer = bytearray(min(room, UNPACKED_BYTES_MAX))
        try:
            return bytes(memoryview(buffer)[: decompress_into(packed, buffer)])
        except cramjam.DecompressionError:
            if room >= UNPACKED_BYTES_MAX or len(buffer) > 2000 * len(packed) + 4096:
                raise
            room *= 4


def _decompress_snappy(packed: bytes) -> bytes:
    """Snappy as the Java client frames it (xerial's blocks), or one bare block as some others send."""
    if not packed.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(packed)
    blocks, position = [], 16
    while position + 4 <= len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        if not 0 < length <= len(packed) - position - 4:
            raise CorruptBatch("a snappy block that does not fit its batch")
        blocks.append(_decompress_snappy_block(packed[position + 4 : position + 4 + length]))
        position += 4 + length
        if sum(map(len, blocks)) > UNPACKED_BYTES_MAX:
            raise CorruptBatch("snappy data that unpacks to too much")
    return b"".join(blocks)


def _decompress_snappy_block(block: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > UNPACKED_BYTES_MAX:
        raise CorruptBatch("a snappy block that unpacks to too much")
    return bytes(cramjam.snappy.decompress_raw(block))
