"""The exactly-once sink in Spark: micro-batches that run again, versions of batch writes, and tasks that fail."""

import pytest
from exactly_once import Query
from pyspark.errors import PySparkException
from spark_scenario import STREAM_S, SparkScenario, forget_the_last_batch, read_batch

ONCE = {"deliveryGuarantee": "exactly-once"}


def copy_what_there_is(story: SparkScenario, source: str, target: str) -> None:
    """Copy the new records of a topic in micro-batches, from the checkpoint of the last copy."""
    stream = story.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="3", minPartitions="2")
    writer = stream.select("value").writeStream.format("cordwood").option("bootstrapServers", story.log.bootstrap)
    writer = writer.options(topic=target, checkpointLocation=str(story.directory / "checkpoint"), **ONCE)
    assert writer.trigger(availableNow=True).start().awaitTermination(STREAM_S)


def test_a_micro_batch_that_runs_again_is_written_once(story: SparkScenario) -> None:
    source, target = story.log.topic(), story.log.topic(2)
    story.log.append(source, *"abcd")
    copy_what_there_is(story, source, target)
    assert read_batch(story.log.bootstrap, subscribe=target) == [*"abcd"]
    forget_the_last_batch(story.directory / "checkpoint")
    story.log.append(source, "e")
    copy_what_there_is(story, source, target)
    assert read_batch(story.log.bootstrap, subscribe=target) == [*"abcde"]
    written = read_batch(story.log.bootstrap, subscribe=target, isolation="read_uncommitted")
    assert len(written) > 5, "the batch did not run again: this would show nothing"


def test_a_version_of_a_batch_write_is_written_once(story: SparkScenario) -> None:
    topic = story.log.topic(2)
    for version, value in enumerate("aab"):
        rows = story.spark.createDataFrame([(value,), (value,)], "value string").repartition(2)
        story.write(rows, topic=topic, transactionalId=topic, transactionVersion=str(version // 2), **ONCE)
    assert read_batch(story.log.bootstrap, subscribe=topic) == ["a", "a", "b", "b"]


def test_nothing_of_a_write_is_seen_if_one_of_its_tasks_fails(story: SparkScenario) -> None:
    query = Query(story.log)
    rows = story.spark.createDataFrame([("a", 0), ("b", -2)], "value string, partition int").repartition(2, "partition")
    named = {"transactionalId": query.name, "transactionVersion": "0", **ONCE}
    with pytest.raises(PySparkException, match="a row has partition -2"):
        story.write(rows, topic=query.topic, **named)
    assert query.committed() == []
    assert query.open_transactions() == []


def test_more_than_the_brokers_allow_is_refused_with_a_sentence(story: SparkScenario) -> None:
    rows = story.spark.createDataFrame([("a",)], "value string")
    named = {"transactionalId": "long", "transactionVersion": "0", "transactionTimeoutMs": "1h", **ONCE}
    with pytest.raises(PySparkException, match=r"transactionTimeoutMs is 3600000: the brokers allow less"):
        story.write(rows, topic=story.log.topic(), **named)
