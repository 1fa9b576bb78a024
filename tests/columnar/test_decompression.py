"""Decompression of batches: codecs, framings of snappy, and a bound on memory."""

import struct

import cramjam
import pytest
from decoded import decoded, sealed

from cordwood.columnar.batches import Framed
from cordwood.columnar.decompression import Unpacker
from cordwood.columnar.errors import CorruptRecords
from cordwood.storage.batch import HEADER_BYTES, Compression, check
from cordwood.storage.budget import UNPACKED_BYTES_MAX
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, encode

RECORDS = [Record(at, 1000 + at, b"k", b"value" * at) for at in range(50)]
PACKED = [each for each in Compression if each is not Compression.NONE]


def packed_with(batch: bytes, compression: Compression, packed: bytes) -> bytes:
    """Return the batch with other bytes as its compressed records."""
    made = bytearray(batch[:HEADER_BYTES]) + packed
    struct.pack_into(">h", made, 21, compression)
    return sealed(made)


def test_snappy_without_a_frame_is_read_too() -> None:
    plain = encode(RECORDS)
    bare = bytes(cramjam.snappy.compress_raw(plain[HEADER_BYTES:]))
    assert decoded(packed_with(plain, Compression.SNAPPY, bare)) == RECORDS


def test_snappy_in_many_blocks_is_read() -> None:
    plain = encode(RECORDS)
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(HEADER_BYTES, len(plain), 100):
        block = bytes(cramjam.snappy.compress_raw(plain[at : at + 100]))
        framed += struct.pack(">i", len(block)) + block
    assert decoded(packed_with(plain, Compression.SNAPPY, framed)) == RECORDS
    for cut in (1, 60, len(framed) - 18):
        with pytest.raises(CorruptRecords):
            decoded(packed_with(plain, Compression.SNAPPY, framed[:-cut]))


@pytest.mark.parametrize("compression", PACKED)
def test_what_does_not_unpack_is_refused(compression: Compression) -> None:
    with pytest.raises(CorruptRecords):
        decoded(packed_with(encode(RECORDS), compression, b"\xff\x00nothing of the kind" * 3))


@pytest.mark.parametrize("compression", PACKED)
def test_a_batch_that_unpacks_to_too_much_is_refused(compression: Compression) -> None:
    enormous = encode([Record(0, 0, None, bytes(UNPACKED_BYTES_MAX))], compression=compression)
    with pytest.raises(CorruptRecords, match="64 MiB"):
        decoded(enormous)


def test_an_unknown_codec_is_refused() -> None:
    damaged = bytearray(encode(RECORDS))
    struct.pack_into(">h", damaged, 21, 5)
    with pytest.raises(CorruptRecords, match="unknown codec 5"):
        decoded(sealed(damaged))


@pytest.mark.parametrize("compression", PACKED)
def test_batches_share_a_small_buffer_in_turn_and_it_grows_for_a_large_one(compression: Compression) -> None:
    log = [encode(RECORDS[:5], compression=compression)] * 4 + [encode(RECORDS, compression=compression)]
    framed, position = [], 0
    for batch in log:
        framed.append(Framed(position, check(batch)))
        position += len(batch)
    sizes = []
    plain = []
    for bodies in Unpacker(room=200).bodies(b"".join(log), framed):
        sizes.append(len(bodies.batches))
        plain += [bytes(bodies.buffer[body.start : body.end]) for body in bodies.batches]
    assert plain == [encode(RECORDS[:5])[HEADER_BYTES:]] * 4 + [encode(RECORDS)[HEADER_BYTES:]]
    assert sum(sizes) == 5
    assert len(sizes) > 2, "all at once: the buffer was not small"


def test_packed_and_plain_batches_mix() -> None:
    log = encode(RECORDS[:2]) + encode(RECORDS[2:4], base_offset=2, compression=Compression.LZ4)
    log += encode(RECORDS[4:6], base_offset=4)
    assert decoded(log) == RECORDS[:6]


def test_nothing_to_unpack_is_nothing() -> None:
    assert list(Unpacker().bodies(b"", [])) == []
    with pytest.raises(CorruptBatch):
        list(Unpacker(room=1 << 26).bodies(b"", [Framed(0, check(encode(RECORDS))._replace(attributes=1))]))
