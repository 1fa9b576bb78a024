"""Batches with a right checksum whose header and records are whatever a test wants."""

import struct

import cramjam
from crc32c import crc32c

from cordwood.storage.batch import HEADER_BYTES, Compression
from cordwood.storage.records import Record, encode

RECORDS_OF_A_BOMB = 1 << 20
NOW_MS = 1_700_000_000_000


def raw_batch(body: bytes, count: int, compression: Compression = Compression.NONE) -> bytes:
    """A batch of `body` as its packed records, said to be `count`."""
    batch = bytearray(encode([Record(0, NOW_MS, None, b"")])[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, int(compression), count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def body_of(records: list[Record]) -> bytes:
    """The records alone, not compressed."""
    return encode(records)[HEADER_BYTES:]


def bomb(count: int = RECORDS_OF_A_BOMB, *, key: bytes | None = b"k") -> bytes:
    """Some KB of zstd that are so many small records, sound in every way."""
    body = body_of([Record(0, NOW_MS, key, b"v") for _ in range(count)])
    return raw_batch(bytes(cramjam.zstd.compress(body)), count, Compression.ZSTD)


def zero_deltas(count: int, compression: Compression = Compression.ZSTD) -> bytes:
    """So many records that all claim to be the first."""
    body = body_of([Record(0, NOW_MS, b"k", b"v")]) * count
    packed = bytes(cramjam.zstd.compress(body)) if compression is Compression.ZSTD else body
    return raw_batch(packed, count, compression)
