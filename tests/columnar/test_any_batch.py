"""Property tests of the Arrow decoder: it agrees with the decoder of storage, and refuses damaged bytes."""

import struct

import pytest
from decoded import decoded, sealed
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from cordwood.columnar.errors import CorruptRecords
from cordwood.storage.batch import CRC_COVERS_FROM, HEADER_BYTES, Compression
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, decode, encode

NOW_MS = 1_700_000_000_000

content = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([bytes(70), bytes(8200)]))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
record = st.builds(
    lambda time_ms, key, value, headers: Record(0, NOW_MS + time_ms, key, value, tuple(headers)),
    st.integers(-100_000, 1 << 40),
    content,
    content,
    headers,
)
records = st.one_of(
    st.lists(record, min_size=1, max_size=30),
    # Many records of one length, then others: the decoder locates a run of equal lengths in one step.
    st.builds(lambda one, count, last: [one] * count + last, record, st.integers(1, 150), st.lists(record, max_size=3)),
)


def numbered(some: list[Record], base_offset: int) -> list[Record]:
    return [one._replace(offset=base_offset + at) for at, one in enumerate(some)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(records, st.sampled_from(Compression)), min_size=1, max_size=4))
def test_batches_of_any_records_come_back(batches: list[tuple[list[Record], Compression]]) -> None:
    data, expected = b"", []
    for some, compression in batches:
        expected += (batch := numbered(some, len(expected)))
        data += encode(batch, base_offset=batch[0].offset, compression=compression)
    assert decoded(data) == expected


@settings(max_examples=40, deadline=None)
@given(records, st.data())
def test_only_the_range_is_read(some: list[Record], data: st.DataObject) -> None:
    all_of_them = numbered(some, 0)
    start = data.draw(st.integers(0, len(some) - 1))
    end = data.draw(st.integers(start, len(some) + 5))
    assert decoded(encode(all_of_them), start=start, end=end) == all_of_them[start:end]


@settings(max_examples=150, deadline=None)
@given(records, st.data())
def test_damaged_records_are_refused_or_are_what_the_plain_decoder_says(
    some: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(encode(numbered(some, 0)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1) | st.integers(CRC_COVERS_FROM, HEADER_BYTES - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    damaged = sealed(batch)
    try:
        found = decoded(damaged)
    except CorruptRecords:
        return
    if found:
        assert [one._replace(timestamp=0) for one in found] == [one._replace(timestamp=0) for one in decode(damaged)]


@pytest.mark.parametrize("times", [1, 40], ids=["one after the other", "abreast"])
@settings(max_examples=40, deadline=None)
@given(data=st.binary(min_size=7, max_size=200), count=st.integers(1, 25))
def test_bytes_that_were_never_records_are_refused(times: int, data: bytes, count: int) -> None:
    batch = bytearray(encode([Record(0, NOW_MS, None, b"")])[:HEADER_BYTES]) + data
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    log = b""
    for at in range(times):
        struct.pack_into(">q", batch, 0, at * count)
        log += sealed(batch)
    try:
        expected = decode(sealed(batch))
    except CorruptBatch:
        with pytest.raises(CorruptRecords):
            decoded(log)
    else:
        assert len(expected) == count


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4], ids=lambda codec: Compression(codec).name)
def test_batches_of_another_encoder_come_back(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    expected = [
        Record(at, NOW_MS + 7 * at, b"key" if at % 2 else None, b"value" * at, (("a", b"b"),) * (at % 3))
        for at in range(200)
    ]
    for one in expected:
        assert builder.append(one.offset, one.timestamp, one.key, one.value, list(one.headers))
    assert decoded(bytes(builder.build())) == expected
