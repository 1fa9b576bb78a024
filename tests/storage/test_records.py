"""Encoding and decoding of records: a round trip, and the same bytes as another client."""

import contextlib
import struct
from collections.abc import Callable

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from cordwood.storage.batch import Compression
from cordwood.storage.budget import UNPACKED_BYTES_MAX
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, decode, encode

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 3, (("h", b"1"), ("h", b"2"), ("empty", b""))),
    Record(1, 1_700_000_000_007, None, b""),
    Record(2, 1_699_999_999_999, b"", None, (("none", None), ("é", b"\x00\xff"))),
]

a_timestamp = st.integers(0, 2**62)
a_field = st.none() | st.binary(max_size=50)
headers = st.lists(st.tuples(st.text(max_size=10), a_field), max_size=3).map(tuple)
record = st.builds(Record, st.just(0), a_timestamp, a_field, a_field, headers)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + place) for place, record in enumerate(records)]


@given(st.lists(record, min_size=1, max_size=20), st.sampled_from(Compression), st.integers(0, 2**60))
def test_what_goes_in_comes_out(records: list[Record], compression: Compression, base_offset: int) -> None:
    batch = encode(records, compression=compression, base_offset=base_offset)
    assert decode(batch) == numbered(records, base_offset)


@pytest.mark.parametrize("compression", Compression)
def test_another_client_reads_what_we_write(compression: Compression) -> None:
    theirs = DefaultRecordBatch(bytearray(encode(RECORDS, compression=compression)))
    assert theirs.validate_crc()
    assert [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers)) for r in theirs
    ] == RECORDS


@pytest.mark.parametrize("compression", Compression)
def test_we_read_what_another_client_writes(compression: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, int(compression), 0, -1, -1, -1, 1 << 20)
    for offset, timestamp, key, value, record_headers in RECORDS:
        assert builder.append(offset, timestamp, key, value, list(record_headers))
    assert decode(bytes(builder.build())) == RECORDS


@pytest.mark.parametrize(
    ("compression", "pack"),
    [
        (Compression.GZIP, cramjam.gzip.compress),
        (Compression.SNAPPY, cramjam.snappy.compress_raw),
        (Compression.LZ4, cramjam.lz4.compress),
        (Compression.ZSTD, cramjam.zstd.compress),
    ],
)
def test_a_bomb_is_refused_before_it_fills_the_memory(
    compression: Compression, pack: Callable[[bytes], cramjam.Buffer]
) -> None:
    bomb = bytes(UNPACKED_BYTES_MAX + 1)
    with pytest.raises(CorruptBatch):
        decode(with_body(bytes(pack(bomb)), compression))


@given(st.binary(max_size=200), st.sampled_from(Compression))
def test_no_body_makes_it_stumble(body: bytes, compression: Compression) -> None:
    with contextlib.suppress(CorruptBatch):
        decode(with_body(body, compression))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="codec"):
        decode(encode(RECORDS, attributes=5))


def test_bytes_after_the_last_record_are_refused() -> None:
    one = encode(RECORDS[:1])
    with pytest.raises(CorruptBatch):
        decode(with_body(one[61:] + b"\x00", Compression.NONE))


def test_a_record_that_lies_about_its_length_is_refused() -> None:
    one = encode(RECORDS[:1])[61:]
    for length in (one[0] - 2, one[0] + 2, 0):
        with pytest.raises(CorruptBatch):
            decode(with_body(bytes([length]) + one[1:], Compression.NONE))


def with_body(body: bytes, compression: Compression) -> bytes:
    """Return a batch that announces one record, with a valid checksum and arbitrary bytes as its compressed records."""
    batch = bytearray(encode([Record(0, 0, None, b"")])[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, int(compression))
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)
