"""A Spark driver process that copies a topic to a Delta table until it is killed: BOOTSTRAP TOPIC TABLE CHECKPOINT."""

import sys
from collections.abc import Callable

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cordwood.spark.session import local_session

COPY = "copy"


def appends_once(table: str) -> Callable[[DataFrame, int], None]:
    """Return a `foreachBatch` function that appends a batch unless the table already has it."""

    def append(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("cast(value as string) as value", "partition", "offset").toArrow()
        done = DeltaTable(table).transaction_version(COPY) if DeltaTable.is_deltatable(table) else None
        if done is None or number > done:
            once = CommitProperties(app_transactions=[Transaction(COPY, number)])
            write_deltalake(table, rows, mode="append", commit_properties=once)

    return append


def copying(spark: SparkSession, bootstrap: str, topic: str, table: str, checkpoint: str) -> DataStreamWriter:
    """Return the stream, not started. Its batches are small, so that there are many."""
    stream = spark.readStream.format("cordwood").option("bootstrapServers", bootstrap).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "500")
    writer = stream.load().writeStream.foreachBatch(appends_once(table))
    return writer.option("checkpointLocation", checkpoint)


def copied(_bootstrap: str, table: str) -> list[str]:
    """Return the sorted values of the table."""
    if not DeltaTable.is_deltatable(table):
        return []
    return sorted(DeltaTable(table).to_pyarrow_table().column("value").to_pylist())


if __name__ == "__main__":
    copying(local_session(), *sys.argv[1:]).start().awaitTermination()
