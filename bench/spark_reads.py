"""`python -m cordwood.bench.spark_reads`: Spark's rate of aggregating a topic, beside Parquet and the decoder alone."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from cordwood.bench.__main__ import HOME
from cordwood.bench.generator import load_generator
from cordwood.bench.lines import LARGE, SMALL, GeneratorMode, LoadLine
from cordwood.bench.machine import cpu_seconds
from cordwood.bench.systems import Cordwood, Running
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import fetch
from cordwood.spark.client.settings import ClientSettings, addresses
from cordwood.spark.columns import Column, Columns
from cordwood.spark.range_reader import Decoder, read_range
from cordwood.spark.ranges import LATEST, OffsetRange
from cordwood.spark.session import QUIET, local_session
from cordwood.storage.types import TopicPartition

PARTITIONS = 2
CORES = 2
HELD_BYTES_MAX = 256 << 20
EVERYTHING, VALUES = Columns.all(headers=False), Columns((Column.VALUE,))
# The options of a session for tests make it start sooner and run slower.
FULL_SPEED = {"spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {QUIET}", "spark.driver.memory": "2g"}


@dataclass(frozen=True, slots=True)
class SparkRead:
    """One way to read records of one size. `cpu_s` is the broker's processor time."""

    name: str
    records: int
    record_bytes: int
    seconds: float
    cpu_s: float

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        rate = self.records / self.seconds
        megabytes = f"{rate * self.record_bytes / 1e6:,.0f}"
        return f"{rate / 1e6:.2f}", megabytes, f"{self.seconds:.2f}", f"{self.cpu_s:.2f}", self.name


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each is read; the quickest counts.")] = 4,
    scale: Annotated[float, typer.Option(min=0.001, help="The share of the work to do, for a quick trial.")] = 1.0,
) -> None:
    """Measure one broker, two topics of two partitions, and Spark on two cores of the same machine."""
    progress = Console(stderr=True, style="dim")
    lines = [
        LoadLine("100 B", GeneratorMode.PRODUCE, SMALL, int(6_000_000 * scale)),
        LoadLine("1 KB", GeneratorMode.PRODUCE, LARGE, int(1_500_000 * scale), record_bytes=1000),
    ]
    generator = load_generator(HOME, progress.print)
    HOME.mkdir(parents=True, exist_ok=True)
    table = Table("M records/s", "MB/s", "s", "broker CPU s", "")
    with tempfile.TemporaryDirectory(prefix="data-", dir=HOME) as place, Cordwood().running(Path(place)) as broker:
        for line in lines:
            progress.print(f"writing {line.records:,} records of {line.name}")
            generator.create_topic(broker.bootstrap, line.topic, PARTITIONS, 1)
            generator.run(line, broker.bootstrap, broker.pids)
        spark = local_session(CORES, FULL_SPEED)
        for line in lines:
            for reading in _Readings(spark, broker, line, rounds).all():
                table.add_row(*reading.row())
        spark.stop()
    Console().print(table)


class _Readings:
    """All the ways to read the records of one line."""

    def __init__(self, spark: SparkSession, broker: Running, line: LoadLine, rounds: int) -> None:
        self._spark, self._broker, self._line, self._rounds = spark, broker, line, rounds
        self._settings = ClientSettings(addresses(broker.bootstrap))
        places = [TopicPartition(line.topic, index) for index in range(PARTITIONS)]
        ends = ClusterReader(self._settings).offsets(dict.fromkeys(places, LATEST))
        self._parts = [OffsetRange(place.topic, place.partition, 0, end) for place, end in ends.items()]

    def all(self) -> Iterator[SparkRead]:
        """Measure Spark first, then its parts on one core."""
        whole, records = self._source(), self._line.records
        yield self._best("Spark, values", records, lambda: _aggregate(self._source(VALUES)))
        more = ("max(offset)", "max(timestamp)", "min(key)")
        yield self._best("Spark, all columns", records, lambda: _aggregate(whole, *more))
        yield self._from_parquet()
        part = self._parts[0]
        reading = lambda: _drain(read_range(self._settings, part, EVERYTHING))  # noqa: E731
        yield self._best("client and decoder, one core", part.count, reading)
        yield self._decoder_alone(part)

    def _source(self, columns: Columns = EVERYTHING) -> DataFrame:
        options = {"bootstrapServers": self._broker.bootstrap, "subscribe": self._line.topic}
        return self._spark.read.format("cordwood").options(**options).schema(columns.ddl).load()

    def _from_parquet(self) -> SparkRead:
        """Read as many files as partitions, written without compression."""
        with tempfile.TemporaryDirectory(dir=HOME) as place:
            for part in self._parts:
                with pq.ParquetWriter(
                    f"{place}/{part.partition}.parquet", VALUES.arrow_schema, compression="none", use_dictionary=False
                ) as file:
                    for table in read_range(self._settings, part, VALUES):
                        file.write_batch(table)
            copy = self._spark.read.parquet(place)
            return self._best("Spark, values from Parquet", self._line.records, lambda: _aggregate(copy))

    def _decoder_alone(self, part: OffsetRange) -> SparkRead:
        """Decode the same batches from memory, which is an upper bound of all other ways."""
        held, size = [], 0
        for fetched in fetch(ClusterReader(self._settings), part):
            held.append(fetched)
            size += len(fetched.data)
            if size > HELD_BYTES_MAX:
                break

        def decode() -> None:
            decoder = Decoder(part, EVERYTHING)
            for fetched in held:
                _drain(decoder.decode(fetched))

        return self._best("decoder, one core", held[-1].end, decode)

    def _best(self, name: str, records: int, read: Callable[[], object]) -> SparkRead:
        times = []
        for _ in range(self._rounds):
            begin, cpu_before = time.perf_counter(), cpu_seconds(self._broker.pids)
            read()
            times.append((time.perf_counter() - begin, cpu_seconds(self._broker.pids) - cpu_before))
        return SparkRead(f"{self._line.name}: {name}", records, self._line.record_bytes, *min(times))


def _aggregate(frame: DataFrame, *more: str) -> None:
    frame.selectExpr("count(*)", "sum(length(value))", *more).collect()


def _drain(tables: Iterator[pa.RecordBatch]) -> None:
    for _ in tables:
        pass


if __name__ == "__main__":
    typer.run(main)
