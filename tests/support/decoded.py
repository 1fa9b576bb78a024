"""Record batches decoded as a Spark task decodes them, returned as plain records."""

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa
from crc32c import crc32c

from cordwood.columnar.batches import Aborted, FetchedBatches, split
from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.decoder import Decoder
from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.batch import CRC_COVERS_FROM, LENGTH_PREFIX_BYTES
from cordwood.storage.records import Record
from cordwood.storage.types import TopicPartition

PLACE = TopicPartition("flights", 3)
EVERYTHING = Columns.all(headers=True)
FAR = 1 << 62


def decoded(data: bytes, *, start: int = 0, end: int = FAR, aborted: Sequence[Aborted] = ()) -> list[Record]:
    """Return the records of a Fetch response from `start` on. Raises the same errors as a Spark task."""
    return records_of(tables(data, EVERYTHING, start=start, end=end, aborted=aborted))


def sealed(batch: bytearray) -> bytes:
    """Return the batch with its length and checksum corrected to match its bytes."""
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_PREFIX_BYTES)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_COVERS_FROM:])))
    return bytes(batch)


def tables(
    data: bytes, columns: Columns, *, start: int = 0, end: int = FAR, aborted: Sequence[Aborted] = ()
) -> list[pa.RecordBatch]:
    """Decode to Arrow batches, and check that each is valid and has Spark's schema."""
    fetched = FetchedBatches(data, split(data, PLACE, start), list(aborted))
    found = list(Decoder(OffsetRange(PLACE.topic, PLACE.partition, start, end), columns).decode(fetched))
    for table in found:
        table.validate(full=True)
        assert table.schema == columns.arrow_schema
    return found


def records_of(found: Iterable[pa.RecordBatch]) -> list[Record]:
    """Return rows with all columns as storage records, with timestamps in ms."""
    return [
        Record(offset, time_us // 1000, key, value, tuple((each["key"], each["value"]) for each in headers or ()))
        for table in found
        for offset, time_us, key, value, headers in zip(
            table.column(Column.OFFSET).to_pylist(),
            table.column(Column.TIMESTAMP).cast(pa.int64()).to_pylist(),
            table.column(Column.KEY).to_pylist(),
            table.column(Column.VALUE).to_pylist(),
            table.column(Column.HEADERS).to_pylist(),
            strict=True,
        )
    ]
