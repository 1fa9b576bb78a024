"""A Spark driver process that copies a topic to another, exactly once: BOOTSTRAP FROM TO CHECKPOINT."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spark_scenario import read_batch

from cordwood.spark.session import local_session


def copying(spark: SparkSession, bootstrap: str, topic: str, target: str, checkpoint: str) -> DataStreamWriter:
    """Return the stream, not started. Its batches are a part of what the test sends at a time."""
    stream = spark.readStream.format("cordwood").option("bootstrapServers", bootstrap).option("subscribe", topic)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000")
    writer = stream.load().select("key", "value").writeStream.format("cordwood").option("bootstrapServers", bootstrap)
    writer = writer.option("topic", target).option("deliveryGuarantee", "exactly-once")
    return writer.option("checkpointLocation", checkpoint)


def copied(bootstrap: str, target: str) -> list[str]:
    """Return the sorted values that a read_committed reader sees."""
    return read_batch(bootstrap, subscribe=target)


if __name__ == "__main__":
    copying(local_session(), *sys.argv[1:]).start().awaitTermination()
