"""Topics of a running broker, read and written by Spark and by the readers that Spark drives."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from broker_fixture import wait_until
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from topics import make_topic

from cordwood.columnar.columns import Column, Columns
from cordwood.spark.batch_source import BatchReader
from cordwood.spark.read_options import ReadMode, read_options
from cordwood.spark.stream_source import StreamReader
from cordwood.spark.survey import Survey

STREAM_S = 60.0
ADMIN_S = 15
_names = count(1)
MARKERS_S = 30.0


class Log:
    """A broker's topics. Each test creates its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 1, name: str | None = None) -> str:
        """Create a topic, with a generated name unless one is given."""
        return make_topic(self.bootstrap, name or f"topic-{next(_names)}", partitions)

    def append(self, topic: str, *values: str, partition: int = 0, **record: Any) -> None:
        """Produce one record for each value, and wait for the acknowledgements."""
        for value in values:
            self._producer.produce(topic, value.encode(), partition=partition, **record)
        assert self._producer.flush(ADMIN_S) == 0

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Return once no client finds it."""
        self._admin.delete_topics([topic])[topic].result(ADMIN_S)
        survey = Survey(read_options({"bootstrapServers": self.bootstrap, "subscribe": topic}))
        wait_until(lambda: not survey.places(), ADMIN_S, f"the end of {topic}")

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete all records of a partition below an offset."""
        place = TopicPartition(topic, partition, before)
        for each in self._admin.delete_records([place]).values():
            each.result(ADMIN_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions to `total`."""
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(ADMIN_S)
        survey = Survey(read_options({"bootstrapServers": self.bootstrap, "subscribe": topic}))
        wait_until(lambda: len(survey.places()) == total, ADMIN_S, f"{total} partitions of {topic}")


class Driver:
    """The calls of Spark's driver and tasks to a stream reader, without Spark."""

    def __init__(self, bootstrap: str, **given: str) -> None:
        options = read_options({"bootstrapServers": bootstrap, **given}, ReadMode.STREAM)
        self.reader = StreamReader(options, Columns((Column.VALUE,)))

    def begin(self) -> dict[str, Any]:
        """Return the offsets at which a new query starts."""
        return self.reader.initialOffset()

    def next_end(self, start: Mapping[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the offsets at which the batch from `start` ends."""
        return self.reader.latestOffset(dict(start), limit or self.reader.getDefaultReadLimit())

    def all_there_is(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return the end offsets for a trigger that reads all available records."""
        return self.next_end(start, ReadAllAvailable())

    def read(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[str]:
        """Return the values of a batch, sorted."""
        return _values(self.reader, self.reader.partitions(dict(start), dict(end)))


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open. An ended one is open until its markers are written."""

    def end(isolation: str) -> int:
        survey = Survey(read_options({"bootstrapServers": bootstrap, "subscribe": topic, "isolation": isolation}))
        return sum(survey.latest(survey.places()).values())

    wait_until(lambda: end("read_committed") == end("read_uncommitted"), MARKERS_S, f"the markers in {topic}")


def read_batch(bootstrap: str, **given: str) -> list[str]:
    """Return the values of a batch read, sorted, without Spark."""
    reader = BatchReader(
        read_options({"bootstrapServers": bootstrap, **given}, ReadMode.BATCH), Columns((Column.VALUE,))
    )
    return _values(reader, reader.partitions())


def _values(reader: BatchReader | StreamReader, parts: list[Any]) -> list[str]:
    tables = [table for part in parts for table in reader.read(part)]
    return sorted(value.decode() for table in tables for value in table.column(0).to_pylist())


def forget_the_last_batch(checkpoint: Path) -> None:
    """Remove Spark's commit of the last micro-batch, as after a kill between the sink's commit and Spark's."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


class SparkScenario:
    """Spark with a broker's topics: tables to read and write, and streams."""

    def __init__(self, spark: SparkSession, log: Log, directory: Path) -> None:
        self.spark, self.log, self.directory = spark, log, directory

    def table(self, schema: str | None = None, **options: str) -> DataFrame:
        """Return spark.read of format cordwood."""
        reader = self.spark.read.format("cordwood").option("bootstrapServers", self.log.bootstrap).options(**options)
        return reader.schema(schema).load() if schema else reader.load()

    def write(self, table: DataFrame, **options: str) -> None:
        """Run df.write of format cordwood."""
        writer = table.write.format("cordwood").option("bootstrapServers", self.log.bootstrap)
        writer.options(**options).mode("append").save()

    def stream(self, **options: str) -> DataFrame:
        """Return spark.readStream of format cordwood."""
        reader = self.spark.readStream.format("cordwood").option("bootstrapServers", self.log.bootstrap)
        return reader.options(**options).load()

    def seen(self, stream: DataFrame, **trigger: Any) -> "Seen":
        """Start a stream and keep its values by batch number. The test's next stream resumes from its checkpoint."""
        return Seen(stream, self.directory / "checkpoint", trigger)


class Seen:
    """A running stream and its values so far."""

    def __init__(self, stream: DataFrame, checkpoint: Path, trigger: Mapping[str, Any]) -> None:
        self.batches: dict[int, list[str]] = {}
        writer = stream.selectExpr("cast(value as string) as value").writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (writer.trigger(**trigger) if trigger else writer).start()

    def _keep(self, table: DataFrame, number: int) -> None:
        self.batches[number] = sorted(row.value for row in table.collect())

    @property
    def values(self) -> list[str]:
        """All values, sorted."""
        return sorted(value for values in self.batches.values() for value in values)

    def until(self, *values: str) -> "Seen":
        """Wait until exactly these values have arrived."""
        wanted = sorted(values)
        wait_until(lambda: self._has_ended() or self.values == wanted, STREAM_S, f"the values {wanted}")
        assert self.values == wanted, self.query.exception()
        return self

    def to_its_end(self) -> "Seen":
        """Wait until the query ends by itself."""
        assert self.query.awaitTermination(int(STREAM_S)), "the query goes on"
        return self

    def _has_ended(self) -> bool:
        return not self.query.isActive

    def stop(self) -> None:
        """Stop the query once everything available is committed."""
        self.query.processAllAvailable()
        self.query.stop()
