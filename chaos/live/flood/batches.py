"""Record batches that are small on the wire and large when decompressed, and batches with a false header."""

import random
import struct

import cramjam
from crc32c import crc32c

from cordwood.storage.batch import CRC_COVERS_FROM, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, Compression
from cordwood.storage.records import Record, encode

CRC_AT = 17
HEADER = struct.Struct(">qiibIhiqqqhii")
BOMB_RECORDS = 3_000_000
HONEST_RECORDS = 250_000
"""As many records, with their offsets, as fit into one batch of the default `message.max.bytes`."""
WIDE_VALUE_BYTES = 60 << 20
NOISE_SHARE = 1 / 1500
"""The share of incompressible bytes: a batch that decompresses to 2,000 times its size is refused immediately."""
KEYED_RECORD = bytes((14, 0, 0, 0, 2, ord("k"), 0, 0))
"""Length 7, no attributes, both deltas 0, the key "k", an empty value, no headers."""


def bomb(records: int = BOMB_RECORDS) -> bytes:
    """Return millions of keyed records in some KB of zstd. Their offset deltas are all 0, unlike the header's."""
    first = encode([Record(0, 0, b"k", _noise(records * len(KEYED_RECORD)))])
    return _batch(first[HEADER_BYTES:] + KEYED_RECORD * (records - 1), records)


def honest_bomb(records: int = HONEST_RECORDS) -> bytes:
    """Return a valid zstd batch of as many records as fit into one."""
    return encode([Record(offset, 0, b"k", b"") for offset in range(records)], compression=Compression.ZSTD)


def wide_bomb(value_bytes: int = WIDE_VALUE_BYTES) -> bytes:
    """Return a valid zstd batch of one record, whose value is some KB on the wire and tens of MB decompressed."""
    value = _noise(value_bytes) + bytes(value_bytes)
    return encode([Record(0, 0, b"k", value)], compression=Compression.ZSTD)


def liar(claimed: int) -> bytes:
    """Return one record after a header that claims more records, and offsets for all of them."""
    return _batch(KEYED_RECORD, claimed)


def plain(value_bytes: int) -> bytes:
    """Return an uncompressed batch of one record."""
    return encode([Record(0, 0, None, bytes(value_bytes))])


def tiny() -> bytes:
    """Return the smallest possible batch."""
    return encode([Record(0, 0, None, None)])


def _noise(packed_bytes: int) -> bytes:
    return random.Random(packed_bytes).randbytes(int(packed_bytes * NOISE_SHARE))


def _batch(body: bytes, records: int) -> bytes:
    packed = bytes(cramjam.zstd.compress(body))
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(packed)
    head = HEADER.pack(0, length, 0, MAGIC, 0, Compression.ZSTD, records - 1, 0, 0, -1, -1, -1, records)
    batch = bytearray(head + packed)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
    return bytes(batch)
