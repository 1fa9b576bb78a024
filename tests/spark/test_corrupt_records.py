"""Corrupt batches in a Spark task: an error with the offset, or a skip to the next batch (`failOnCorruptRecords`)."""

import logging

import pytest
from raw_batches import raw_batch

from cordwood.columnar.batches import FetchedBatches, split
from cordwood.columnar.columns import Columns
from cordwood.columnar.decoder import Decoder
from cordwood.columnar.errors import CorruptRecords
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.range_reader import HOW_TO_SKIP
from cordwood.storage.batch import Compression, check, stamp
from cordwood.storage.records import Record, encode

WANTED = OffsetRange("flights", 3, 0, 100)


def answer(*batches: bytes) -> FetchedBatches:
    data, offset = b"", 0
    for batch in batches:
        header = check(batch)
        data += stamp(header, offset, 0) + batch[16:]
        offset += header.record_count
    return FetchedBatches(data, split(data, WANTED.place, 0), [])


def values(decoder: Decoder, fetched: FetchedBatches) -> list[bytes]:
    return [value for batch in decoder.decode(fetched) for value in batch.column("value").to_pylist()]


def sound(*texts: bytes, compression: Compression = Compression.ZSTD) -> bytes:
    return encode([Record(at, 0, None, text) for at, text in enumerate(texts)], compression=compression)


UNPACKS_TO_NOTHING = raw_batch(b"nothing that was ever compressed", 5, Compression.ZSTD)
WITHOUT_RECORDS = raw_batch(b"\xff" * 40, 5)


@pytest.mark.parametrize("corrupt", [UNPACKS_TO_NOTHING, WITHOUT_RECORDS], ids=["compressed", "plain"])
def test_it_is_stepped_over_only_where_that_is_asked_for(corrupt: bytes, caplog: pytest.LogCaptureFixture) -> None:
    fetched = answer(sound(b"a", b"b"), corrupt, sound(b"c"), sound(b"d", compression=Compression.NONE))
    with pytest.raises(CorruptRecords, match="set failOnCorruptRecords to false"):
        values(Decoder(WANTED, Columns.all(headers=False), how_to_skip=HOW_TO_SKIP), fetched)
    with caplog.at_level(logging.WARNING):
        assert values(Decoder(WANTED, Columns.all(headers=False), may_skip_corrupt=True), fetched) == [
            b"a",
            b"b",
            b"c",
            b"d",
        ]
    [line] = caplog.messages
    assert "flights-3" in line
    assert "offset 2" in line
    assert line.endswith("continuing at offset 7")
