"""Bounded decompression of a batch's records, whole or only the first bytes.

The decompressors write into a buffer of limited size and stop when it is full, so that a batch cannot use more memory
than allowed, whatever size it claims.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

import cramjam

from cordwood.storage.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Compression
from cordwood.storage.budget import Budget
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16

FRONT_BYTES = 16 << 10
"""First buffer size of a reader that may not need all records."""
GROWTH = 4
"""Growth of the buffer for another try: all tries together cost a third more than one with the size known."""
USUAL_RATIO = 8

_NO_ROOM = "failed to write whole buffer"

_DecompressInto = Callable[[Bytes, bytearray], int]
_DECOMPRESS_INTO: dict[int, _DecompressInto] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


Content = bytes | bytearray


class Body(NamedTuple):
    """Decompressed records of a batch: `content` up to `end`. Unless `is_whole`, more follow."""

    content: Content
    end: int
    is_whole: bool = True


def whole_body(batch: Bytes, header: BatchHeader, budget: Budget) -> Body:
    """Return all records of a batch. Raises CorruptBatch, and OverBudget if they exceed the budget's bytes."""
    size = max(FRONT_BYTES, USUAL_RATIO * header.size)
    body = unpack(batch, header, min(size, budget.unpacked_bytes))
    while not body.is_whole and size < budget.unpacked_bytes:
        size *= GROWTH
        del body  # Freed first: there are never two of them.
        body = unpack(batch, header, min(size, budget.unpacked_bytes))
    if header.attributes & CODEC_MASK:
        budget.spend_bytes(body.end if body.is_whole else budget.unpacked_bytes + 1)
    return body


def unpack(batch: Bytes, header: BatchHeader, size: int) -> Body:
    """Return the first `size` bytes of a batch's records; all if they are not compressed. Raises CorruptBatch."""
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    codec = header.attributes & CODEC_MASK
    if codec == Compression.NONE:
        return Body(bytes(packed), len(packed))
    if codec > Compression.ZSTD:
        raise CorruptBatch(f"unknown codec {codec}")
    room = bytearray(size)
    try:
        if codec == Compression.SNAPPY:
            return _unpack_snappy(packed, room)
        return Body(room, _DECOMPRESS_INTO[codec](packed, room))
    except cramjam.DecompressionError as error:
        if str(error) == _NO_ROOM:
            return Body(room, size, is_whole=False)
        raise CorruptBatch(f"{Compression(codec).name.lower()} data that cannot be decompressed: {error}") from error


def unpacked(data: bytes, codec: int, bytes_max: int) -> bytes:
    """Decompress data that is no batch. Raises CorruptBatch, and OverflowError for more than `bytes_max` bytes."""
    if codec == Compression.NONE:
        return data
    room = bytearray(bytes_max)
    try:
        if codec == Compression.SNAPPY:
            body = _unpack_snappy(memoryview(data), room)
            if not body.is_whole:
                raise OverflowError(bytes_max)
            return bytes(memoryview(room)[: body.end])
        return bytes(memoryview(room)[: _DECOMPRESS_INTO[codec](data, room)])
    except cramjam.DecompressionError as error:
        if str(error) == _NO_ROOM:
            raise OverflowError(bytes_max) from None
        raise CorruptBatch(f"data that cannot be decompressed: {error}") from error


def _unpack_snappy(packed: memoryview, room: bytearray) -> Body:
    """Unpack Snappy in the Java client's framing (xerial blocks), or one raw block as some clients send."""
    if packed[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _unpack_block(packed, room, 0)
    body, position = Body(room, 0), XERIAL_HEADER_BYTES
    while position < len(packed) and body.is_whole:
        block = _block_at(packed, position)
        body = _unpack_block(block, room, body.end)
        position += 4 + len(block)
    return body


def _block_at(packed: memoryview, position: int) -> memoryview:
    remain = len(packed) - position - 4
    length = struct.unpack_from(">i", packed, position)[0] if remain > 0 else 0
    if not 0 < length <= remain:
        raise CorruptBatch("a snappy block of a wrong size")
    return packed[position + 4 : position + 4 + length]


def _unpack_block(block: memoryview, room: bytearray, begin: int) -> Body:
    """Unpack one block, whole or not at all: the block states its size first."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > len(room) - begin:
        return Body(room, begin, is_whole=False)
    with memoryview(room) as view:
        return Body(room, begin + int(cramjam.snappy.decompress_raw_into(block, view[begin : begin + size])))
