"""Isolation of reads from transactions: committed records only, and planned up to the last stable offset."""

from collections.abc import Iterator

import pytest
from spark_scenario import Driver, Log, read_batch, wait_for_markers
from transactional_clients import ConfluentProducer


@pytest.fixture
def topic(log: Log) -> str:
    return log.topic()


@pytest.fixture
def writer(log: Log, topic: str) -> Iterator[ConfluentProducer]:
    """Return a producer in a transaction, with the id of its topic."""
    producer = ConfluentProducer(log.bootstrap, topic)
    producer.begin()
    yield producer
    producer.close()


def test_a_batch_read_ends_below_the_first_open_transaction(log: Log, topic: str, writer: ConfluentProducer) -> None:
    log.append(topic, "a")
    writer.send(topic, b"b")
    log.append(topic, "c")
    assert read_batch(log.bootstrap, subscribe=topic) == ["a"]
    assert read_batch(log.bootstrap, **{"subscribe": topic, "kafka.isolation.level": "read_uncommitted"}) == [*"abc"]
    writer.commit()
    wait_for_markers(log.bootstrap, topic)
    assert read_batch(log.bootstrap, subscribe=topic) == [*"abc"]


def test_aborted_records_and_markers_are_passed_over(log: Log, topic: str, writer: ConfluentProducer) -> None:
    writer.send(topic, b"a")
    writer.abort()
    wait_for_markers(log.bootstrap, topic)
    assert read_batch(log.bootstrap, subscribe=topic) == []
    log.append(topic, "b")
    assert read_batch(log.bootstrap, subscribe=topic) == ["b"]
    assert read_batch(log.bootstrap, subscribe=topic, isolation="read_uncommitted") == ["a", "b"]
    assert read_batch(log.bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 1}}}}') == ["b"]


def test_a_stream_waits_for_the_end_of_a_transaction(log: Log, topic: str, writer: ConfluentProducer) -> None:
    log.append(topic, "a")
    writer.send(topic, b"b")
    log.append(topic, "c")
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest")
    start = driver.begin()
    first = driver.next_end(start)
    assert driver.read(start, first) == ["a"]
    assert driver.next_end(first) == first
    writer.commit()
    wait_for_markers(log.bootstrap, topic)
    second = driver.next_end(first)
    assert driver.read(first, second) == ["b", "c"]
    assert driver.next_end(second) == second


def test_a_stream_from_the_latest_includes_a_transaction_that_is_open(
    log: Log, topic: str, writer: ConfluentProducer
) -> None:
    log.append(topic, "old")
    writer.send(topic, b"a")
    driver = Driver(log.bootstrap, subscribe=topic)
    start = driver.begin()
    writer.commit()
    wait_for_markers(log.bootstrap, topic)
    assert driver.read(start, driver.next_end(start)) == ["a"]


def test_a_stream_ends_a_batch_after_the_markers_of_an_aborted_transaction(
    log: Log, topic: str, writer: ConfluentProducer
) -> None:
    writer.send(topic, b"a")
    driver = Driver(log.bootstrap, subscribe=topic, startingOffsets="earliest")
    start = driver.begin()
    writer.abort()
    wait_for_markers(log.bootstrap, topic)
    end = driver.next_end(start)
    assert end[topic] == {"0": 2}
    assert driver.read(start, end) == []
    assert driver.next_end(end) == end
