"""Record batches with a valid checksum and arbitrary header and records."""

import functools
import struct

import cramjam
from crc32c import crc32c

from cordwood.storage.batch import HEADER_BYTES, Compression
from cordwood.storage.records import Record, encode

RECORDS_OF_A_BOMB = 1 << 20
NOW_MS = 1_700_000_000_000


def raw_batch(body: bytes, count: int, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch with `body` as its packed records and `count` as its record count."""
    batch = bytearray(encode([Record(0, NOW_MS, None, b"")])[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, int(compression), count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def body_of(records: list[Record]) -> bytes:
    """Return the packed records of a batch without its header, uncompressed."""
    return encode(records)[HEADER_BYTES:]


@functools.cache
def bomb(count: int = RECORDS_OF_A_BOMB, *, key: bytes | None = b"k") -> bytes:
    """Return a valid zstd batch of a few KB that unpacks to `count` small records."""
    body = body_of([Record(0, NOW_MS, key, b"v") for _ in range(count)])
    return raw_batch(bytes(cramjam.zstd.compress(body)), count, Compression.ZSTD)


def zero_deltas(count: int, compression: Compression = Compression.ZSTD) -> bytes:
    """Return a batch of `count` records whose offset deltas are all 0."""
    body = body_of([Record(0, NOW_MS, b"k", b"v")]) * count
    packed = bytes(cramjam.zstd.compress(body)) if compression is Compression.ZSTD else body
    return raw_batch(packed, count, compression)
