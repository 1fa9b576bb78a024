"""Arrow columns of decoded records: types, order, selection and timestamps."""

import datetime

import pyarrow as pa
import pytest
from decoded import EVERYTHING, PLACE, decoded, records_of, sealed, tables

from cordwood.columnar.batches import FetchedBatches, split
from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.decoder import ROWS_MAX, Decoder
from cordwood.columnar.errors import CorruptRecords
from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.batch import Compression, with_append_time
from cordwood.storage.records import Record, encode

NOW_MS = 1_700_000_000_123
LZ4 = Compression.LZ4


def only(data: bytes, column: Column) -> list[object]:
    return [value for table in tables(data, Columns((column,))) for value in table.column(0).to_pylist()]


def test_every_column_of_a_record() -> None:
    [table] = tables(encode([Record(0, NOW_MS, b"key", b"value", (("a", b"1"), ("b", None)))]), EVERYTHING)
    assert table.to_pylist() == [
        {
            "key": b"key",
            "value": b"value",
            "topic": "flights",
            "partition": 3,
            "offset": 0,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, datetime.UTC),
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        }
    ]


def test_null_and_empty_are_not_the_same() -> None:
    data = encode([Record(0, 0, None, b""), Record(1, 0, b"", None)])
    assert only(data, Column.KEY) == [None, b""]
    assert only(data, Column.VALUE) == [b"", None]
    assert only(data, Column.HEADERS) == [None, None]


@pytest.mark.parametrize("column", Column)
def test_any_column_can_be_asked_for_alone(column: Column) -> None:
    data = encode([Record(at, NOW_MS, b"k", b"v", (("h", b"1"),)) for at in range(3)])
    [table] = tables(data, EVERYTHING)
    assert only(data, column) == table.column(column).to_pylist()


def test_the_order_of_the_columns_is_the_readers() -> None:
    [table] = tables(encode([Record(0, 0, b"k", b"v")]), Columns((Column.OFFSET, Column.VALUE)))
    assert table.schema.names == ["offset", "value"]


def test_append_time_is_the_batchs_for_every_record() -> None:
    batch = with_append_time(encode([Record(0, 5, None, b""), Record(1, 6, None, b"")]), NOW_MS)
    data = batch + encode([Record(2, 7, None, b"")], base_offset=2)
    assert [record.timestamp for record in decoded(data)] == [NOW_MS, NOW_MS, 7]
    assert only(data, Column.TIMESTAMP_TYPE) == [1, 1, 0]


def test_many_rows_come_ten_thousand_at_a_time() -> None:
    data = encode([Record(at, at, None, b"%d" % at) for at in range(2 * ROWS_MAX + 1)])
    assert [table.num_rows for table in tables(data, EVERYTHING)] == [ROWS_MAX, ROWS_MAX, 1]
    assert [record.value for record in decoded(data)] == [b"%d" % at for at in range(2 * ROWS_MAX + 1)]


def test_a_time_beyond_microseconds_becomes_the_last_there_is() -> None:
    [table] = tables(encode([Record(0, 1 << 61, None, b"")]), Columns((Column.TIMESTAMP,)))
    assert table.column(0).cast(pa.int64()).to_pylist() == [9_223_372_036_854_774_000]


def test_a_headers_key_that_is_not_utf8_is_refused() -> None:
    batch = encode([Record(0, 0, None, b"", (("ab", b"c"),))])
    with pytest.raises(CorruptRecords, match="UTF-8"):
        decoded(sealed(bytearray(batch.replace(b"ab", b"\xff\xfe"))))


def test_what_was_decoded_stays_when_the_buffer_is_used_again() -> None:
    decoder = Decoder(OffsetRange(PLACE.topic, PLACE.partition, 0, 200), EVERYTHING)
    batches = [
        encode([Record(base + at, 0, b"key", word * 30) for at in range(100)], base_offset=base, compression=LZ4)
        for base, word in ((0, b"first"), (100, b"other"))
    ]
    first, other = (list(decoder.decode(FetchedBatches(batch, split(batch, PLACE, 0), []))) for batch in batches)
    assert {record.value for record in records_of(first)} == {b"first" * 30}
    assert {record.value for record in records_of(other)} == {b"other" * 30}
