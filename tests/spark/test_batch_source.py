"""Batch reads: the offset range of the options, each record once, and user errors as sentences."""

import pytest
from pyspark.sql.datasource import InputPartition
from spark_scenario import Driver, Log, read_batch

from cordwood.columnar.columns import Columns
from cordwood.columnar.errors import OffsetsGone
from cordwood.spark.batch_source import BatchReader
from cordwood.spark.errors import WrongOption
from cordwood.spark.read_options import read_options


def test_all_committed_records_of_the_topics_are_read(log: Log) -> None:
    one, other = log.topic(2), log.topic()
    log.append(one, "a", "b")
    log.append(one, "c", partition=1)
    log.append(other, "d")
    assert read_batch(log.bootstrap, subscribe=f"{one},{other}") == ["a", "b", "c", "d"]
    assert read_batch(log.bootstrap, subscribePattern=f"{one}|{other}x") == ["a", "b", "c"]
    assert read_batch(log.bootstrap, assign=f'{{"{one}": [1]}}') == ["c"]


def test_nothing_is_read_of_an_empty_topic_and_of_a_pattern_without_topics(log: Log) -> None:
    assert read_batch(log.bootstrap, subscribe=log.topic()) == []
    assert read_batch(log.bootstrap, subscribePattern="no-such-.*") == []


def test_offsets_bound_what_is_read(log: Log) -> None:
    topic = log.topic(2)
    log.append(topic, "a", "b", "c")
    log.append(topic, "d", "e", partition=1)
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 1, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": -1, "1": 1}}}}',
    }
    assert read_batch(log.bootstrap, subscribe=topic, **bounds) == ["b", "c", "d"]


def test_times_bound_what_is_read(log: Log) -> None:
    topic = log.topic()
    for at, value in enumerate("abcd"):
        log.append(topic, value, timestamp=1000 + at)
    assert read_batch(log.bootstrap, subscribe=topic, startingTimestamp="1001", endingTimestamp="1003") == ["b", "c"]
    by_partition = f'{{"{topic}": {{"0": 1002}}}}'
    assert read_batch(log.bootstrap, subscribe=topic, startingOffsetsByTimestamp=by_partition) == ["c", "d"]
    assert read_batch(log.bootstrap, subscribe=topic, endingTimestamp="5000") == ["a", "b", "c", "d"]


def test_a_time_later_than_all_records_is_an_error_unless_it_may_be(log: Log) -> None:
    topic = log.topic()
    log.append(topic, "a", timestamp=1000)
    with pytest.raises(WrongOption, match=f"startingTimestamp is later than every record of {topic}-0"):
        read_batch(log.bootstrap, subscribe=topic, startingTimestamp="2000")
    late = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    assert read_batch(log.bootstrap, subscribe=topic, **late) == []


def test_partitions_are_cut_into_as_many_tasks_as_wanted(log: Log) -> None:
    topic = log.topic(2)
    log.append(topic, *"abcdefgh")
    log.append(topic, "i", partition=1)
    assert read_batch(log.bootstrap, subscribe=topic, minPartitions="5") == [*"abcdefghi"]
    assert read_batch(log.bootstrap, subscribe=topic, maxRecordsPerPartition="3") == [*"abcdefghi"]


def test_records_that_are_gone_are_an_error_unless_they_may_be(log: Log) -> None:
    topic = log.topic()
    log.append(topic, *"abcd")
    log.delete_records(topic, before=2)
    assert read_batch(log.bootstrap, subscribe=topic) == ["c", "d"]
    early = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    with pytest.raises(OffsetsGone, match=r"from offset 0 to 2: .*set failOnDataLoss to false to continue"):
        read_batch(log.bootstrap, **early)
    assert read_batch(log.bootstrap, failOnDataLoss="false", **early) == ["c", "d"]


def test_records_that_go_between_planning_and_reading_are_treated_alike(log: Log) -> None:
    topic = log.topic()
    log.append(topic, *"abcd")
    strict = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest")
    lenient = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    start = strict.begin()
    end = strict.next_end(start)
    log.delete_records(topic, before=3)
    with pytest.raises(OffsetsGone, match="set failOnDataLoss to false"):
        strict.read(start, end)
    assert lenient.read(start, end) == ["d"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "TOPICS"}, "there is no topic TOPICS: did you mean TOPIC"),
        ({"assign": '{"TOPIC": [0, 7]}'}, "assign names TOPIC-7, and the topic has fewer partitions"),
        ({"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 9}}'}, "has 9 for TOPIC-0, whose records end at 1"),
        ({"subscribe": "TOPIC", "endingOffsets": '{"TOPIC": {"0": 9}}'}, "has 9 for TOPIC-0, whose records end at 1"),
    ],
)
def test_what_is_not_there_gets_a_sentence(log: Log, options: dict[str, str], sentence: str) -> None:
    topic = log.topic()
    log.append(topic, "a")
    given = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(WrongOption) as wrong:
        read_batch(log.bootstrap, **given)
    assert sentence.replace("TOPIC", topic) in str(wrong.value)


def test_a_part_without_a_range_is_read_as_nothing(log: Log) -> None:
    reader = BatchReader(read_options({"bootstrapServers": log.bootstrap, "subscribe": "t"}), Columns.all(headers=True))
    assert list(reader.read(InputPartition(None))) == []
