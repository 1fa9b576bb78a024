"""Stream reads: each record in exactly one micro-batch, over restarts, new partitions and changed logs."""

import json
import pickle
from enum import IntEnum

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from scripted_broker import ScriptedBroker
from spark_scenario import Driver, Log

from cordwood.spark.errors import DataLost, WrongOption
from cordwood.storage.records import Record, encode


def test_a_batch_ends_where_the_next_begins(log: Log) -> None:
    topic = log.topic(2)
    log.append(topic, "old")
    driver = Driver(log.bootstrap, subscribe=topic)
    start = driver.begin()
    log.append(topic, "a", "b")
    first = driver.next_end(start)
    log.append(topic, "c", partition=1)
    second = driver.next_end(first)
    assert driver.read(start, first) == ["a", "b"]
    assert driver.read(first, second) == ["c"]


def test_with_nothing_new_the_offset_is_the_same_text(log: Log) -> None:
    topic = log.topic(12)
    log.append(topic, "a", partition=10)
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest")
    first = driver.next_end(driver.begin())
    assert json.dumps(driver.next_end(first)) == json.dumps(first)
    assert driver.read(first, first) == []
    log.append(topic, "b", partition=9)
    second = driver.next_end(first)
    assert list(second[topic]) == [str(number) for number in range(12)]
    assert json.dumps(driver.next_end(second)) == json.dumps(second)


def test_a_first_batch_from_the_latest_survives_a_restart(log: Log) -> None:
    topic = log.topic()
    log.append(topic, "old")
    crashing = Driver(log.bootstrap, subscribe=topic)
    start = crashing.begin()
    log.append(topic, "a", "b")
    kept_by_spark = json.dumps(crashing.next_end(start))
    log.append(topic, "c")

    restarted = Driver(log.bootstrap, subscribe=topic)
    end = json.loads(kept_by_spark)
    assert restarted.read(end, end) == []
    assert restarted.read(restarted.begin(), end) == ["a", "b"]
    assert restarted.read(end, restarted.next_end(end)) == ["c"]


def test_a_query_that_has_not_begun_hears_the_same_beginning_twice(log: Log) -> None:
    topic = log.topic()
    driver = Driver(log.bootstrap, subscribe=topic)
    start = driver.begin()
    log.append(topic, "a")
    assert driver.begin() == start == {topic: {"0": 0}}


def test_a_batch_takes_no_more_than_it_may(log: Log) -> None:
    topic = log.topic(2)
    log.append(topic, *"abcdef")
    log.append(topic, "g", partition=1)
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    assert driver.reader.getDefaultReadLimit() == ReadMaxRows(3)
    start = driver.begin()
    first = driver.next_end(start)
    assert len(driver.read(start, first)) == 3
    assert sorted(driver.read(start, first) + driver.read(first, driver.all_there_is(first))) == [*"abcdefg"]


def test_a_batch_waits_for_enough_but_the_first_does_not(log: Log) -> None:
    topic = log.topic()
    log.append(topic, "a")
    patient = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="3")
    assert patient.reader.getDefaultReadLimit() == ReadMinRows(3)
    first = patient.next_end(patient.begin())
    log.append(topic, "b", "c")
    assert patient.next_end(first) == first
    assert patient.all_there_is(first) != first
    log.append(topic, "d")
    assert patient.read(first, patient.next_end(first)) == ["b", "c", "d"]


def test_a_batch_does_not_wait_for_ever(log: Log) -> None:
    topic = log.topic()
    log.append(topic, "a")
    wait = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "0"}
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", **wait)
    first = driver.next_end(driver.begin())
    log.append(topic, "b")
    assert driver.read(first, driver.next_end(first)) == ["b"]


def test_available_now_ends_at_what_there_was(log: Log) -> None:
    topic = log.topic(2)
    log.append(topic, *"abcd")
    limits = {"maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "3"}
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", **limits)
    driver.reader.prepareForTriggerAvailableNow()
    start = driver.begin()
    log.append(topic, "late")
    log.append(topic, "too late", partition=1)
    first = driver.next_end(start)
    second = driver.next_end(first)
    assert driver.read(start, first) + driver.read(first, second) == [*"abcd"]
    assert driver.next_end(second) == second


def test_available_now_from_the_latest_reads_nothing(log: Log) -> None:
    topic = log.topic()
    driver = Driver(log.bootstrap, subscribe=topic)
    driver.reader.prepareForTriggerAvailableNow()
    log.append(topic, "late")
    start = driver.begin()
    assert driver.read(start, driver.next_end(start)) == []


def test_new_partitions_are_read_from_their_start(log: Log) -> None:
    topic = log.topic()
    driver = Driver(log.bootstrap, subscribe=topic)
    first = driver.next_end(driver.begin())
    log.add_partitions(topic, 2)
    log.append(topic, "a", "b", partition=1)
    assert driver.read(first, driver.next_end(first)) == ["a", "b"]


def test_new_topics_that_match_the_pattern_are_read_from_their_start(log: Log) -> None:
    topic = log.topic()
    driver = Driver(log.bootstrap, subscribePattern=f"{topic}.*")
    first = driver.next_end(driver.begin())
    log.append(log.topic(name=f"{topic}-more"), "a")
    assert driver.read(first, driver.next_end(first)) == ["a"]


def test_the_progress_shows_how_far_the_log_goes(log: Log) -> None:
    topic = log.topic()
    log.append(topic, *"abcde")
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert driver.reader.reportLatestOffset() is None
    end = driver.next_end(driver.begin())
    assert end[topic] == {"0": 2}
    assert driver.reader.reportLatestOffset() == {topic: {"0": 5}}


def test_a_topic_that_was_deleted_ends_the_stream_unless_it_may_be_lost(log: Log) -> None:
    topic, other = log.topic(), log.topic()
    log.append(topic, "a")
    both = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    strict, lenient = Driver(log.bootstrap, **both), Driver(log.bootstrap, **both, failOnDataLoss="false")
    first = strict.next_end(strict.begin())
    lenient.begin()
    log.delete_topic(topic)
    log.append(other, "b")
    with pytest.raises(DataLost, match=f"{topic}-0: missing: the topic was probably deleted"):
        strict.next_end(first)
    second = lenient.next_end(first)
    assert lenient.read(first, second) == ["b"]
    log.append(log.topic(name=topic), "anew")
    assert lenient.read(second, lenient.next_end(second)) == ["anew"]


def test_a_topic_that_was_made_again_is_read_from_its_start_where_that_is_allowed(log: Log) -> None:
    topic = log.topic()
    log.append(topic, *"abc")
    earliest = {"subscribe": topic, "startingOffsets": "earliest"}
    strict, lenient = Driver(log.bootstrap, **earliest), Driver(log.bootstrap, **earliest, failOnDataLoss="false")
    first = strict.next_end(strict.begin())
    lenient.begin()
    log.delete_topic(topic)
    log.append(log.topic(name=topic), "x", "y")
    with pytest.raises(DataLost, match="shorter than the records already read"):
        strict.next_end(first)
    assert lenient.read(first, lenient.next_end(first)) == ["x", "y"]


def test_a_new_partition_that_has_lost_records_already_is_data_loss(log: Log) -> None:
    topic = log.topic()
    strict = Driver(log.bootstrap, subscribe=topic)
    lenient = Driver(log.bootstrap, subscribe=topic, failOnDataLoss="false")
    first = strict.next_end(strict.begin())
    lenient.begin()
    log.add_partitions(topic, 2)
    log.append(topic, *"abc", partition=1)
    log.delete_records(topic, before=2, partition=1)
    with pytest.raises(DataLost, match=f"{topic}-1: new, and its first records are already deleted"):
        strict.next_end(first)
    assert lenient.read(first, lenient.next_end(first)) == ["c"]


class ApiKey(IntEnum):
    """API keys of the requests that a reader sends."""

    LIST_OFFSETS = 2
    METADATA = 3
    API_VERSIONS = 18


class AskedBroker(ScriptedBroker):
    """A broker that records the API keys of its requests."""

    def __init__(self) -> None:
        self.asked: list[ApiKey] = []
        super().__init__(encode([Record(0, 0, None, b"a")], base_offset=0))

    def _answer(self, frame: bytes) -> bytes:
        self.asked.append(ApiKey(int.from_bytes(frame[:2])))
        return super()._answer(frame)


@pytest.mark.parametrize("which", [{"subscribe": "flights"}, {"subscribePattern": "fl.*"}])
def test_a_trigger_asks_for_the_partitions_once_and_for_their_ends_once(which: dict[str, str]) -> None:
    with AskedBroker() as broker:
        driver = Driver(str(broker.address), startingOffsets="earliest", **which)
        end = driver.next_end(driver.begin())
        broker.asked.clear()
        assert driver.next_end(end) == end
        assert driver.reader.reportLatestOffset() == {"flights": {"0": 1}}
        assert broker.asked == [ApiKey.METADATA, ApiKey.LIST_OFFSETS]


def test_a_batch_is_cut_into_as_many_tasks_as_wanted(log: Log) -> None:
    topic = log.topic()
    log.append(topic, *"abcdef")
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest", minPartitions="4")
    start = driver.begin()
    assert len(driver.reader.partitions(start, driver.next_end(start))) == 4


def test_a_stream_of_a_topic_that_is_not_there_gets_a_sentence(log: Log) -> None:
    with pytest.raises(WrongOption, match="there is no topic nowhere"):
        Driver(log.bootstrap, subscribe="nowhere").begin()


def test_a_reader_travels_to_the_executors_in_the_middle_of_its_work(log: Log) -> None:
    topic = log.topic()
    log.append(topic, "a")
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest")
    start = driver.begin()
    [part] = driver.reader.partitions(start, driver.all_there_is(start))
    [table] = pickle.loads(pickle.dumps(driver.reader)).read(part)
    assert table.to_pydict() == {"value": [b"a"]}


def test_without_limits_spark_is_asked_for_none(log: Log) -> None:
    assert Driver(log.bootstrap, subscribe="t").reader.getDefaultReadLimit() == ReadAllAvailable()
