"""Delays by carrier, computed by Spark: with a streaming query during the demo, and with one batch query."""

from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.functions import col, from_json

from examples.flights.source import Delays

FLIGHT = "carrier string, dep_delay double, arr_delay double"


def delays_of(records: DataFrame) -> DataFrame:
    """Return a row for each carrier: its two-letter code, and the columns of `Delays`."""
    flights = records.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    return flights.groupBy("carrier").agg(
        functions.count("*"),
        functions.avg("dep_delay"),
        functions.max("dep_delay"),
        functions.avg("arr_delay"),
        functions.max("arr_delay"),
    )


def read_delays(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, Delays]:
    """Return the delays of all records in the topic, by carrier."""
    reader = spark.read.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
    return _by_carrier(delays_of(reader.option("subscribe", topic).load()).collect())


class DelaysStream:
    """A streaming query that keeps the delays by carrier up to date."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path, seen: Callable[[int], object]
    ) -> None:
        """Start the query. `seen` is called after each micro-batch with the number of records so far."""
        self.delays: dict[str, Delays] = {}
        self._seen = seen
        reader = spark.readStream.format("cordwood").option("kafka.bootstrap.servers", bootstrap)
        records = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = delays_of(records).writeStream.outputMode("complete").foreachBatch(self._take)
        self._query = writer.option("checkpointLocation", str(checkpoint)).start()

    def finish(self) -> None:
        """Process all committed records and stop. Raises the query's error if the query has failed."""
        self._query.processAllAvailable()
        self._query.stop()

    def _take(self, delays: DataFrame, _batch_id: int) -> None:
        self.delays = _by_carrier(delays.collect())
        self._seen(sum(carrier.flights for carrier in self.delays.values()))


def _by_carrier(rows: Iterable[Row]) -> dict[str, Delays]:
    return {row[0]: Delays(*row[1:]) for row in rows}
