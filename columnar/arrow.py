"""Arrow RecordBatches of decoded records, with the selected columns only."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cordwood.columnar.columns import ARROW_TYPES, Column, Columns
from cordwood.columnar.records import Headers, Records, Spans
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import TopicPartition

US_PER_MS = 1000
TIME_MS_MAX = (1 << 63) // US_PER_MS - 1


class Builder:
    """The RecordBatch builder of one partition, for at most `rows_max` rows per RecordBatch."""

    def __init__(self, columns: Columns, place: TopicPartition, rows_max: int) -> None:
        self._columns = columns
        self._schema = columns.arrow_schema
        self._topic = pa.array([place.topic], pa.string()).take(pa.array(np.zeros(rows_max, dtype=np.int64)))
        self._partition = pa.array(np.full(rows_max, place.partition, dtype=np.int32))

    def build(self, records: Records, buffer: Bytes) -> pa.RecordBatch:
        """Build a RecordBatch; all bytes are copied from `buffer`. Raises CorruptBatch."""
        made: dict[Column, pa.Array] = {}
        wanted = set(self._columns)
        if wanted & {Column.KEY, Column.VALUE, Column.HEADERS}:
            keys, values, ends_at = records.key_and_value()
            source = pa.py_buffer(buffer)
            if Column.KEY in wanted:
                made[Column.KEY] = _binary(source, keys)
            if Column.VALUE in wanted:
                made[Column.VALUE] = _binary(source, values)
            if Column.HEADERS in wanted:
                made[Column.HEADERS] = _headers(source, records.headers(ends_at))
        made[Column.TOPIC] = self._topic[: len(records)]
        made[Column.PARTITION] = self._partition[: len(records)]
        made[Column.OFFSET] = pa.array(records.offsets)
        if Column.TIMESTAMP in wanted:
            made[Column.TIMESTAMP] = _microseconds(records.timestamps)
        if Column.TIMESTAMP_TYPE in wanted:
            made[Column.TIMESTAMP_TYPE] = pa.array(records.timestamp_types.astype(np.int32))
        return pa.RecordBatch.from_arrays([made[column] for column in self._columns], schema=self._schema)


def _binary(source: pa.Buffer, spans: Spans) -> pa.Array:
    """Copy byte strings with one Arrow `take`: the strings alternate with the gaps between them in one array."""
    count = len(spans.starts)
    if spans.is_null.all():
        return pa.nulls(count, pa.binary())
    edges = np.empty(2 * count + 1, dtype=np.int32)
    edges[:-1:2] = spans.starts
    edges[1::2] = spans.starts + spans.lengths
    edges[-1] = edges[-2]
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), source])
    each_second = np.arange(0, 2 * count, 2, dtype=np.int64)
    return both.take(pa.array(each_second, mask=spans.is_null if spans.is_null.any() else None))


def _microseconds(times_ms: NDArray[np.int64]) -> pa.Array:
    """Convert ms to microseconds. Times beyond 64 bits of microseconds (292,000 years) are clipped."""
    return pa.array(np.clip(times_ms, -TIME_MS_MAX, TIME_MS_MAX) * US_PER_MS).view(ARROW_TYPES[Column.TIMESTAMP])


def _headers(source: pa.Buffer, headers: Headers) -> pa.Array:
    """Return the headers as lists; null for a record without headers, as in Spark's Kafka source."""
    count = len(headers.counts)
    kind = ARROW_TYPES[Column.HEADERS]
    if not headers.counts.any():
        return pa.nulls(count, kind)
    try:
        keys = _binary(source, headers.keys).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatch("a header's key that is not UTF-8") from error
    pairs = pa.StructArray.from_arrays([keys, _binary(source, headers.values)], fields=list(kind.value_type))
    edges = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(headers.counts, out=edges[1:])
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=kind, mask=pa.array(headers.counts == 0))
