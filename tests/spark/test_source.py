"""format("cordwood") in Spark: tables, streams, writes, and error messages."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from spark_scenario import SparkScenario

from cordwood.spark.offsets import ends_of
from cordwood.storage.types import TopicPartition


def values(table: DataFrame) -> list[str]:
    return sorted(row.value for row in table.selectExpr("cast(value as string) as value").collect())


def test_a_table_has_the_columns_of_sparks_kafka_source(story: SparkScenario) -> None:
    topic = story.log.topic()
    story.log.append(topic, "v", key=b"k", headers=[("h", b"1")], timestamp=1_795_262_400_123)
    table = story.table(subscribe=topic, includeHeaders="true")
    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    [row] = table.withColumn("timestamp", F.col("timestamp").cast("string")).collect()
    assert row.asDict(recursive=True) == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": "2026-11-21 12:00:00.123",
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }


def test_a_table_is_counted_and_read_in_parts(story: SparkScenario) -> None:
    topic = story.log.topic(2)
    story.log.append(topic, *(str(number) for number in range(50)))
    story.log.append(topic, *(str(number) for number in range(50, 75)), partition=1)
    table = story.table(subscribe=topic, minPartitions="5")
    assert table.count() == 75
    assert table.rdd.getNumPartitions() == 5
    assert story.table("offset bigint", subscribe=topic).agg(F.sum("offset")).first()[0] == 1225 + 300
    assert story.table(subscribe=story.log.topic()).count() == 0


def test_one_table_with_two_filters_is_right_whatever_the_session_pushes(story: SparkScenario) -> None:
    topic = story.log.topic(2)
    story.log.append(topic, "a", "b")
    story.log.append(topic, "c", partition=1)
    table = story.table(subscribe=topic)
    assert story.spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert values(table.where("partition = 0").union(table.where("partition = 1"))) == ["a", "b", "c"]
    assert table.count() == 3


def test_filters_are_pushed_down_on_request(story: SparkScenario) -> None:
    topic, unread = story.log.topic(2), story.log.topic()
    for at, value in enumerate("abcde"):
        story.log.append(topic, value, timestamp=1_795_262_400_000 + at)
    story.log.append(topic, "f", partition=1, timestamp=1_795_262_400_009)
    story.log.append(unread, "g")

    def read(condition: str) -> list[str]:
        table = story.table(subscribe=f"{topic},{unread}", filterPushdown="true").where(condition)
        assert table.rdd.getNumPartitions() == 1
        return values(table)

    assert read(f"topic = '{topic}' and partition = 0 and offset > 1 and offset <= 3") == ["c", "d"]
    assert read(f"topic <> '{unread}' and partition in (0, 5) and offset in (0, 4)") == ["a", "e"]
    assert read(f"topic like '{topic}%' and timestamp >= '2026-11-21 12:00:00.004' and offset < 5 and offset > 0") == [
        "e"
    ]


def test_a_stream_goes_on_where_it_stopped(story: SparkScenario) -> None:
    topic = story.log.topic(2)
    story.log.append(topic, "a", "b")
    stream = story.stream(subscribe=topic, startingOffsets="earliest")
    story.seen(stream).until("a", "b").stop()
    story.log.append(topic, "c", partition=1)
    seen = story.seen(story.stream(subscribe=topic)).until("c")
    story.log.append(topic, "d")
    seen.until("c", "d").stop()


def test_a_stream_takes_what_there_is_in_bites_and_ends(story: SparkScenario) -> None:
    topic = story.log.topic(2)
    story.log.append(topic, *"abcde")
    story.log.append(topic, "f", partition=1)
    stream = story.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    seen = story.seen(stream, availableNow=True).to_its_end()
    assert [len(batch) for batch in seen.batches.values()] == [2, 2, 2]
    assert seen.values == [*"abcdef"]
    assert story.seen(stream, availableNow=True).to_its_end().values == []


def test_a_stream_says_how_far_behind_it_is(story: SparkScenario) -> None:
    topic = story.log.topic()
    story.log.append(topic, *"abcde")
    stream = story.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    seen = story.seen(stream, availableNow=True).to_its_end()
    source = seen.query.recentProgress[0].sources[0]
    assert json.loads(source.latestOffset) == {topic: {"0": 5}}
    assert ends_of(json.loads(source.endOffset)) == {TopicPartition(topic, 0): 2}


def test_an_idle_stream_makes_no_batches(story: SparkScenario) -> None:
    topic = story.log.topic(12)
    story.log.append(topic, "a", partition=10)
    seen = story.seen(story.stream(subscribe=topic, startingOffsets="earliest")).until("a")
    story.log.append(topic, "b", partition=9)
    seen.until("a", "b").stop()
    assert len(seen.batches) == 2


def test_what_was_written_is_read(story: SparkScenario) -> None:
    topic = story.log.topic(3)
    rows = story.spark.range(100).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    story.write(rows, topic=topic)
    assert values(story.table(subscribe=topic)) == sorted(str(number) for number in range(100))


def test_a_stream_is_written_from_topic_to_topic(story: SparkScenario) -> None:
    source, target = story.log.topic(), story.log.topic()
    story.log.append(source, *"abc", headers=[("h", b"1")])
    stream = story.stream(subscribe=source, startingOffsets="earliest", includeHeaders="true")
    writer = stream.drop("topic").writeStream.format("cordwood").option("bootstrapServers", story.log.bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(story.directory / "copy"))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    copied = story.table(subscribe=target, includeHeaders="true")
    assert values(copied) == [*"abc"]
    assert {row.headers[0].key for row in copied.collect()} == {"h"}


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({"subscrib": "t"}, None, "there is no option subscrib: did you mean subscribe?"),
        ({"subscribe": "nowhere"}, None, "there is no topic nowhere"),
        ({"subscribe": "t"}, "value string", "column value is binary, not string"),
        ({"subscribe": "t"}, "value binary not null", "leave NOT NULL out of the schema"),
    ],
)
def test_a_mistake_is_one_sentence(
    story: SparkScenario, options: dict[str, str], schema: str | None, sentence: str
) -> None:
    with pytest.raises(PySparkException) as wrong:
        story.table(schema, **options).count()
    assert sentence in str(wrong.value)
    assert "Traceback" not in str(wrong.value)


def test_a_mistake_in_a_write_is_one_sentence(story: SparkScenario) -> None:
    with pytest.raises(PySparkException) as wrong:
        story.write(story.spark.range(1), topic="t")
    assert "column id cannot be written: a record is made of key, value" in str(wrong.value)
    assert "Traceback" not in str(wrong.value)


def test_a_mistake_ends_a_stream_with_a_sentence(story: SparkScenario) -> None:
    seen = story.seen(story.stream(subscribe="nowhere"))
    with pytest.raises(PySparkException, match="there is no topic nowhere"):
        seen.to_its_end()
