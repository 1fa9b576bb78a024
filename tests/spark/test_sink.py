"""The sink: rows become records on their topic and partition, and a failed record fails the task with a sentence."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from spark_scenario import Log

from cordwood.spark.errors import NotWritten, UserError
from cordwood.spark.sink import BatchSink, Written
from cordwood.spark.sink_options import sink_options

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SPARK_NAMES = {pa.string(): "string", pa.binary(): "binary", pa.int32(): "int"}
HEADERS_NAME = "array<struct<key:string,value:binary>>"


def write(log: Log, *tables: pa.RecordBatch, **given: str) -> Written:
    """Write the tables as one task of `df.write` does."""
    fields = [(field.name, SPARK_NAMES.get(field.type, HEADERS_NAME)) for field in tables[0].schema]
    return BatchSink(sink_options({"bootstrapServers": log.bootstrap, **given}, fields, overwrite=False)).write(
        iter(tables)
    )


def table(**columns: Sequence[object]) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "headers": HEADERS}
    return pa.record_batch({name: pa.array(values, types.get(name)) for name, values in columns.items()})


def records(log: Log, topic: str, partition: int = 0) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "reader"})
    place = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, 15)
    consumer.assign([place])
    messages = consumer.consume(end, 15) if end else []
    assert len(messages) == end
    consumer.close()
    return messages


def test_every_part_of_a_record_is_written(log: Log) -> None:
    topic = log.topic(2)
    rows = table(
        key=["k", None],
        value=[b"v", None],
        partition=[1, 1],
        headers=[[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
    )
    assert write(log, rows, topic=topic) == Written(2)
    full, bare = records(log, topic, 1)
    assert (full.key(), full.value(), full.headers()) == (b"k", b"v", [("h", b"1"), ("h", None)])
    assert (bare.key(), bare.value(), bare.headers()) == (None, None, None)


def test_the_topic_of_the_options_wins_over_the_columns(log: Log) -> None:
    one, other = log.topic(), log.topic()
    rows = table(value=["a", "b"], topic=[one, other])
    write(log, rows)
    write(log, rows, topic=one)
    assert [record.value() for record in records(log, one)] == [b"a", b"a", b"b"]
    assert [record.value() for record in records(log, other)] == [b"b"]


def test_a_key_goes_where_java_clients_send_it(log: Log) -> None:
    hashes = {"21": -973932308, "foobar": -790332482, "abc": 479470107, "a-little-bit-longer-string": -1486304829}
    """Hashes of murmur2 in Kafka's UtilsTest."""
    topic = log.topic(5)
    write(log, table(key=list(hashes), value=list(hashes)), topic=topic)
    found = {str(record.key(), "utf-8"): number for number in range(5) for record in records(log, topic, number)}
    assert found == {key: (hashed & 0x7FFFFFFF) % 5 for key, hashed in hashes.items()}


def test_more_rows_than_the_producer_holds_are_all_written(log: Log) -> None:
    topic = log.topic()
    many = table(value=[f"{number}" for number in range(60_000)])
    assert write(log, many, many, topic=topic, compression="lz4") == Written(120_000)
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "reader"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 15) == (0, 120_000)
    consumer.close()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            table(value=["a"], topic=[None]).cast(pa.schema([("value", pa.string()), ("topic", pa.string())])),
            "no topic",
        ),
        (table(value=["a"], topic=["t"], partition=[-2]), "a row has partition -2: it must be 0 or more"),
        (table(value=["a"], topic=["t"], headers=[[{"key": None, "value": b"1"}]]), "a row has a header without a key"),
    ],
)
def test_a_row_that_is_no_record_fails_the_task(log: Log, rows: pa.RecordBatch, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        write(log, rows)


def test_a_record_that_was_not_taken_fails_the_task(log: Log) -> None:
    topic = log.topic()
    with pytest.raises(NotWritten, match=f"partition 7 of {topic} refused a record"):
        write(log, table(value=["a"], partition=[7]), topic=topic)
    with pytest.raises(NotWritten, match="refused a record"):
        write(log, table(value=["x" * 2_000_000]), topic=topic)


def test_a_cluster_that_does_not_answer_fails_the_task() -> None:
    nobody = Log.__new__(Log)
    nobody.bootstrap = "127.0.0.1:1"
    with pytest.raises(NotWritten, match="t refused a record"):
        write(nobody, table(value=["a"]), topic="t", deliveryTimeoutMs="1s", requestTimeoutMs="1s")
