"""Spark's schema of the records: types of the columns, and column selection by a user's schema."""

from collections.abc import Sequence

from cordwood.columnar.columns import Column, Columns
from cordwood.spark.errors import WrongSchema, nearest

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


def ddl(columns: Columns) -> str:
    """Return the schema as Spark DDL."""
    return ", ".join(f"{column} {SPARK_TYPES[column]}" for column in columns)


def columns_of(fields: Sequence[tuple[str, str]]) -> Columns:
    """Return the columns of a user's schema, given as (name, simple type string).

    Raises WrongSchema for an unknown column or another type.
    """
    return Columns(tuple(_known(name, type_name) for name, type_name in fields))


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
