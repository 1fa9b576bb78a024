"""Decompression of record batches (gzip, snappy, lz4, zstd), many into one buffer for vectorized decoding."""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import cramjam

from cordwood.columnar.batches import Framed
from cordwood.storage.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Compression
from cordwood.storage.budget import UNPACKED_BYTES_MAX
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16

DecompressInto = Callable[[memoryview, memoryview], int]


@dataclass(frozen=True, slots=True)
class DecompressedBody:
    """The position of one batch's decompressed records in a shared buffer."""

    header: BatchHeader
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DecompressedBodies:
    """The decompressed records of several batches. `buffer` is valid until the next ones are requested."""

    buffer: Bytes
    batches: list[DecompressedBody]


class Unpacker:
    """A decompressor with a reused buffer, which grows to the size of the largest batch, up to 64 MiB."""

    def __init__(self, room: int = 8 << 20) -> None:
        self._room = room
        self._buffer = bytearray()

    def bodies(self, data: Bytes, batches: Iterable[Framed]) -> Iterator[DecompressedBodies]:
        """Yield the batches' records in order: without a copy if no batch is compressed, else one buffer at a time.

        Raises CorruptBatch.
        """
        framed = [batch for batch in batches if batch.header.record_count]
        if not framed:
            return
        if all(not batch.header.attributes & CODEC_MASK for batch in framed):
            yield DecompressedBodies(data, [_as_it_came(batch) for batch in framed])
            return
        if not self._buffer:
            self._buffer = bytearray(self._room)
        unpacked: list[DecompressedBody] = []
        for batch in framed:
            start = unpacked[-1].end if unpacked else 0
            end = self._unpack(data, batch, start)
            if end is None and unpacked:
                yield DecompressedBodies(self._buffer, unpacked)
                unpacked, start = [], 0
                end = self._unpack(data, batch, start)
            while end is None:
                self._grow()
                end = self._unpack(data, batch, start)
            unpacked.append(DecompressedBody(batch.header, start, end))
        yield DecompressedBodies(self._buffer, unpacked)

    def _grow(self) -> None:
        if len(self._buffer) >= UNPACKED_BYTES_MAX:
            raise CorruptBatch(
                f"a batch that cannot be decompressed, or decompresses to more than {UNPACKED_BYTES_MAX >> 20} MiB"
            )
        self._buffer = bytearray(min(2 * len(self._buffer), UNPACKED_BYTES_MAX))

    def _unpack(self, data: Bytes, batch: Framed, start: int) -> int | None:
        """Decompress a batch to `start` and return its end; None if it does not fit, or is invalid."""
        packed = memoryview(data)[batch.position + HEADER_BYTES : batch.position + batch.header.size]
        codec = batch.header.attributes & CODEC_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"unknown codec {codec}")
        with memoryview(self._buffer) as buffer:
            try:
                return start + _decompressor(Compression(codec))(packed, buffer[start:])
            except cramjam.DecompressionError:
                return None


def _as_it_came(batch: Framed) -> DecompressedBody:
    return DecompressedBody(batch.header, batch.position + HEADER_BYTES, batch.position + batch.header.size)


def _decompressor(compression: Compression) -> DecompressInto:
    match compression:
        case Compression.NONE:
            return _copy
        case Compression.GZIP:
            return cramjam.gzip.decompress_into
        case Compression.SNAPPY:
            return _decompress_snappy
        case Compression.LZ4:
            return cramjam.lz4.decompress_into
        case Compression.ZSTD:
            return cramjam.zstd.decompress_into


def _copy(plain: memoryview, room: memoryview) -> int:
    if len(plain) > len(room):
        raise cramjam.DecompressionError("no room")
    room[: len(plain)] = plain
    return len(plain)


def _decompress_snappy(packed: memoryview, room: memoryview) -> int:
    """Decompress snappy: in the Java client's framing (xerial blocks), or one raw block, as some other clients send."""
    if packed[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_into(packed, room))
    position, filled = XERIAL_HEADER_BYTES, 0
    while position < len(packed):
        try:
            (length,) = struct.unpack_from(">i", packed, position)
        except struct.error as error:
            raise CorruptBatch("a snappy block cut short") from error
        position += 4
        if not 0 < length <= len(packed) - position:
            raise CorruptBatch("a snappy block of a wrong size")
        filled += int(cramjam.snappy.decompress_raw_into(packed[position : position + length], room[filled:]))
        position += length
    return filled
