"""Compatibility with Spark's Kafka source: it reads the same columns from Cordwood as the `cordwood` source."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from requirements import Requirement, check
from spark_scenario import Log, SparkScenario

from cordwood.bench.maven import fetch_jars
from cordwood.bench.systems import CannotRun

JARS = Path(__file__).resolve().parents[2] / "build" / "spark-kafka"
ARTIFACTS = (
    # The newest version of each on Maven Central that works with Spark 4.3.
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
FORMATS = ("kafka", "cordwood")
PARTITIONS = 3
RECORDS = 2000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", autouse=True)
def kafka_source(spark: SparkSession) -> None:
    """Add the jars of Spark's Kafka source to the shared session."""
    try:
        fetch_jars("Spark's own Kafka source", ARTIFACTS, JARS, with_dependencies=False)
    except CannotRun as reason:
        check(Requirement.MAVEN, False, str(reason))
    for jar in sorted(JARS.glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")


@pytest.fixture(scope="module")
def topic(log: Log) -> str:
    """Produce records of every kind: all codecs, null and empty keys and values, headers, timestamps out of order."""
    name = log.topic(PARTITIONS)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": log.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(RECORDS // len(CODECS)):
            producer.produce(
                name,
                (None, b"", b"value %d" % number * 20)[number % 3],
                (None, b"", b"key %d" % number)[number % 3 - 1],
                number % PARTITIONS,
                timestamp=1_795_262_400_000 + (number * 7919) % 1000,
                headers=[("a", b"1"), ("a", None), ("\u00e9", b"")][: number % 4],
            )
        assert producer.flush(30) == 0
    return name


def table(story: SparkScenario, kind: str, **options: str) -> DataFrame:
    reader = story.spark.read.format(kind).option("kafka.bootstrap.servers", story.log.bootstrap)
    return reader.options(includeHeaders="true", **options).load()


def stream(story: SparkScenario, kind: str, **options: str) -> DataFrame:
    reader: DataStreamReader = story.spark.readStream.format(kind)
    reader = reader.option("kafka.bootstrap.servers", story.log.bootstrap)
    return reader.options(includeHeaders="true", **options).load()


def rows(table: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in table.orderBy("topic", "partition", "offset").collect()]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_batch_reads_the_same(story: SparkScenario, topic: str, isolation: str) -> None:
    options = {"subscribe": topic, "kafka.isolation.level": isolation}
    kafka, ours = (table(story, kind, **options) for kind in FORMATS)
    assert kafka.schema == ours.schema
    assert rows(ours) == rows(kafka)
    assert ours.count() == kafka.count() == RECORDS


@pytest.mark.parametrize(
    "bounds",
    [
        {
            "startingOffsets": '{"TOPIC": {"0": 17, "1": -2, "2": 500}}',
            "endingOffsets": '{"TOPIC": {"0": -1, "1": 40, "2": 501}}',
        },
        {"startingTimestamp": "1795262400500"},
        {"startingOffsetsByTimestamp": '{"TOPIC": {"0": 1795262400900, "1": 0, "2": 1795262400001}}'},
        {"endingTimestamp": "1795262400999", "minPartitions": "7"},
    ],
)
def test_positions_mean_the_same(story: SparkScenario, topic: str, bounds: dict[str, str]) -> None:
    options = {name: value.replace("TOPIC", topic) for name, value in bounds.items()}
    kafka, ours = (rows(table(story, kind, subscribe=topic, **options)) for kind in FORMATS)
    assert ours == kafka
    assert ours


def test_a_stream_reads_the_same(story: SparkScenario, topic: str, tmp_path: Path) -> None:
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "900"}
    for kind in FORMATS:
        writer = stream(story, kind, **options, **{"kafka.isolation.level": "read_committed"}).writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / f"{kind}-place")).trigger(availableNow=True)
        assert writer.format("parquet").start(str(tmp_path / kind)).awaitTermination(60)
    kafka, ours = (rows(story.spark.read.parquet(str(tmp_path / kind))) for kind in FORMATS)
    assert ours == kafka
    assert len(ours) == RECORDS


def test_each_reads_what_the_other_wrote(story: SparkScenario, topic: str) -> None:
    columns = ["key", "value", "partition", "headers"]
    copies = {kind: story.log.topic(PARTITIONS) for kind in FORMATS}
    for kind, copy in copies.items():
        writer = table(story, "cordwood", subscribe=topic).select(*columns).write.format(kind)
        writer.option("kafka.bootstrap.servers", story.log.bootstrap).option("topic", copy).mode("append").save()
    written = [
        # Rows are compared as text, because null has no order.
        sorted(repr(tuple(row)) for row in table(story, reader, subscribe=copy).select(*columns).collect())
        for copy in copies.values()
        for reader in FORMATS
    ]
    assert all(each == written[0] for each in written)
    assert len(written[0]) == RECORDS
