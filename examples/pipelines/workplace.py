"""The environment of a pipeline: brokers, a Spark session, and a directory for tables and checkpoints."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming import DataStreamWriter

from cordwood.spark.session import local_session
from examples.flights.cluster import Cluster
from examples.pipelines.tables import TableRow

PARTITIONS = 3
ANSWER_S = 30.0

FOR_EVER = {"retention.ms": "-1"}
"""Unlimited retention: the flights are from 2013, and any limit would delete them immediately."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """The environment passed to every pipeline, so that a test and `python -m` run the same program."""

    spark: SparkSession
    bootstrap: str
    directory: Path

    def send(self, topic: str, records: Iterable[TableRow]) -> None:
        """Send records to a topic, which is created if missing. Return once all are acknowledged."""
        make_topic(self.bootstrap, topic)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "compression.type": "lz4"}
        )
        refused: list[str] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                timestamp=record.timestamp_ms,
                on_delivery=lambda error, _record: refused.append(str(error)) if error else None,
            )
            producer.poll(0)
        left = producer.flush(ANSWER_S)
        assert not refused, f"{len(refused)} records were refused: {refused[0]}"
        assert left == 0, f"{left} records were not acknowledged within {ANSWER_S:.0f} s"

    def read(self, topic: str, schema: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return the topic's current records: `row` (parsed by `schema`; null in a tombstone) and Kafka's columns."""
        reader = self.spark.read.format("cordwood").options(**self._options(topic, options))
        return _with_row(reader.load(), schema)

    def read_stream(self, topic: str, schema: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return a stream of the topic's records from the first one on, with the columns of `read`."""
        reader = self.spark.readStream.format("cordwood").options(**self._options(topic, options))
        return _with_row(reader.load(), schema)

    def run(self, writer: DataStreamWriter, name: str) -> None:
        """Process all available records, from the checkpoint of the query of this name."""
        checkpoint = str(self.directory / "checkpoints" / name)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    def append(self, rows: DataFrame, name: str) -> None:
        """Append a stream's rows to the Parquet table of this name, exactly once, even across failures."""
        self.run(rows.writeStream.format("parquet").option("path", self.table(name)), name)

    def table(self, name: str) -> str:
        """Return the path of a table."""
        return str(self.directory / name)

    def _options(self, topic: str, more: Mapping[str, str] | None) -> dict[str, str]:
        first = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return {**first, **(more or {})}


@contextmanager
def own_workplace() -> Iterator[Workplace]:
    """Provide a workplace with its own broker, and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="cordwood-pipeline-") as directory:
        place = Path(directory)
        with Cluster(place / "broker", brokers=1) as cluster, local_session() as spark:
            yield Workplace(spark, cluster.bootstrap, place)


def make_topic(bootstrap: str, name: str) -> None:
    """Create a topic with unlimited retention, if it does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if name not in admin.list_topics(timeout=ANSWER_S).topics:
        admin.create_topics([NewTopic(name, PARTITIONS, config=FOR_EVER)])[name].result(ANSWER_S)


def _with_row(records: DataFrame, schema: str) -> DataFrame:
    row = from_json(col("value").cast("string"), schema).alias("row")
    return records.select(col("key").cast("string").alias("key"), row, "partition", "offset", "timestamp")
