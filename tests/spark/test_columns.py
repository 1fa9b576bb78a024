"""Columns of a record: those of Spark's Kafka source, and the selection by a user's schema."""

import pickle

import pytest

from cordwood.columnar.columns import Column, Columns
from cordwood.spark.errors import WrongSchema
from cordwood.spark.schema import columns_of, ddl


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert ddl(Columns.all(headers=False)) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert list(Columns.all(headers=True))[-1] is Column.HEADERS


def test_a_schema_picks_columns_in_its_order() -> None:
    columns = columns_of([("offset", "bigint"), ("value", "binary")])
    assert list(columns) == [Column.OFFSET, Column.VALUE]
    assert Column.KEY not in columns
    assert columns.arrow_schema.names == ["offset", "value"]


def test_columns_travel_to_the_executors() -> None:
    columns = Columns.all(headers=True)
    assert pickle.loads(pickle.dumps(columns)) == columns


@pytest.mark.parametrize(
    ("name", "type_name", "sentence"),
    [
        ("timestamptype", "int", "did you mean timestampType?"),
        ("weather", "int", "did you mean one of key, value, topic"),
        ("value", "string", "column value is binary, not string: use value binary and convert it"),
    ],
)
def test_a_schema_that_is_not_of_a_record_gets_a_sentence(name: str, type_name: str, sentence: str) -> None:
    with pytest.raises(WrongSchema) as wrong:
        columns_of([(name, type_name)])
    assert sentence in str(wrong.value)
