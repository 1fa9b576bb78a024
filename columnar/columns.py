"""The columns of a record, as in Spark's Kafka source, with their Arrow types."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class Column(StrEnum):
    """A column by its name in Spark and in Arrow."""

    KEY = "key"
    VALUE = "value"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"


_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

ARROW_TYPES = {
    Column.KEY: pa.binary(),
    Column.VALUE: pa.binary(),
    Column.TOPIC: pa.string(),
    Column.PARTITION: pa.int32(),
    Column.OFFSET: pa.int64(),
    Column.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Column.TIMESTAMP_TYPE: pa.int32(),
    Column.HEADERS: pa.list_(_HEADER),
}
"""Arrow types that Spark accepts for these types: timestamps are in microseconds UTC."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The selected columns, in the reader's order: `Column.VALUE in columns`, `for column in columns`."""

    wanted: tuple[Column, ...]

    @classmethod
    def all(cls, *, headers: bool) -> "Columns":
        """Return all columns. Headers are optional: decoding them costs as much as all other columns together."""
        return cls(tuple(column for column in Column if headers or column is not Column.HEADERS))

    def __contains__(self, column: object) -> bool:
        return column in self.wanted

    def __iter__(self) -> Iterator[Column]:
        return iter(self.wanted)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the RecordBatches."""
        return pa.schema([pa.field(column, ARROW_TYPES[column]) for column in self.wanted])
