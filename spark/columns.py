"""The columns of a record, as in Spark's Kafka source, with their Spark and Arrow types, and column selection."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from cordwood.spark.errors import WrongSchema, nearest


class Column(StrEnum):
    """A column by its name in Spark."""

    KEY = "key"
    VALUE = "value"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"


SPARK_TYPES = {
    Column.KEY: "binary",
    Column.VALUE: "binary",
    Column.TOPIC: "string",
    Column.PARTITION: "int",
    Column.OFFSET: "bigint",
    Column.TIMESTAMP: "timestamp",
    Column.TIMESTAMP_TYPE: "int",
    Column.HEADERS: "array<struct<key:string,value:binary>>",
}
"""Spark types, as in `DataType.simpleString`."""

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

    @classmethod
    def of_schema(cls, fields: Sequence[tuple[str, str]]) -> "Columns":
        """Return the columns of a user's schema, given as (name, simple type string).

        Raises WrongSchema for an unknown column or another type.
        """
        return cls(tuple(_known(name, type_name) for name, type_name in fields))

    def __contains__(self, column: object) -> bool:
        return column in self.wanted

    def __iter__(self) -> Iterator[Column]:
        return iter(self.wanted)

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ", ".join(f"{column} {SPARK_TYPES[column]}" for column in self.wanted)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the RecordBatches for Spark."""
        return pa.schema([pa.field(column, ARROW_TYPES[column]) for column in self.wanted])


def _known(name: str, type_name: str) -> Column:
    try:
        column = Column(name)
    except ValueError:
        hint = nearest(name, list(Column)) or f"one of {', '.join(Column)}"
        raise WrongSchema(f"a record has no column {name!r}: did you mean {hint}?") from None
    if type_name != SPARK_TYPES[column]:
        raise WrongSchema(
            f"column {name} is {SPARK_TYPES[column]}, not {type_name}: use {name} {SPARK_TYPES[column]} and"
            f" convert it after reading, as in selectExpr('cast({name} as {type_name}) as {name}')"
        )
    return column
