"""Cluster metadata of the Spark client: topics, partitions, and offsets by position and by time, over a restart."""

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from broker_fixture import RunningBroker
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from topics import make_topic

from cordwood.columnar.columns import Columns
from cordwood.columnar.errors import OffsetsGone
from cordwood.columnar.ranges import EARLIEST, LATEST, OffsetRange
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.settings import ClientSettings, addresses
from cordwood.spark.errors import RequestRefused
from cordwood.spark.range_reader import read_range
from cordwood.storage.types import NO_OFFSET, TopicPartition

NOW_MS = 1_700_000_000_000


class Log:
    """One topic of three partitions on a shared broker."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        make_topic(broker.bootstrap, topic, 3)

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def settings(self, **others: int) -> ClientSettings:
        return ClientSettings(addresses(self.broker.bootstrap), **others)  # type: ignore[arg-type]

    @property
    def cluster(self) -> ClusterReader:
        return ClusterReader(self.settings())

    def produce(self, partition: int, count: int, value: bytes = b"x") -> None:
        """Produce acknowledged records one second apart, in small batches."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "batch.size": 5000})
        for nth in range(count):
            producer.produce(self.topic, value, partition=partition, timestamp=NOW_MS + 1000 * nth)
        assert producer.flush(30) == 0

    def delete_records(self, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for done in admin.delete_records([Place(self.topic, partition, before)]).values():
            done.result(15)

    def read(self, partition: int, start: int, end: int, **settings: int) -> Iterator[pa.RecordBatch]:
        wanted = OffsetRange(self.topic, partition, start, end)
        return read_range(self.settings(**settings), wanted, Columns.all(headers=False))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("broker") / "data")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def log(running: RunningBroker, request: pytest.FixtureRequest) -> Log:
    return Log(running, request.node.name.replace("test_", ""))


def test_topics_and_their_partitions(log: Log) -> None:
    assert log.topic in log.cluster.topics()
    assert log.cluster.partitions([log.topic, "no-such-topic"]) == {log.topic: 3}
    assert log.cluster.partitions([]) == {}


def test_a_topic_name_that_cannot_be_is_refused(log: Log) -> None:
    with pytest.raises(RequestRefused, match="topic no/such: invalid_topic"):
        log.cluster.partitions(["no/such"])


def test_offsets_by_place_and_by_time(log: Log) -> None:
    log.produce(1, 10)
    log.delete_records(1, before=3)
    empty, held = log.at(0), log.at(1)
    assert log.cluster.offsets({empty: LATEST, held: LATEST, log.at(2): EARLIEST}) == {empty: 0, held: 10, log.at(2): 0}
    assert log.cluster.offsets({held: EARLIEST}) == {held: 3}
    assert log.cluster.offsets({held: NOW_MS + 4001}) == {held: 5}
    assert log.cluster.offsets({held: NOW_MS + 60_000, empty: NOW_MS}) == {held: NO_OFFSET, empty: NO_OFFSET}
    assert log.cluster.offsets({}) == {}


def test_a_restart_is_waited_for(log: Log) -> None:
    log.produce(0, 2)
    cluster = log.cluster
    assert cluster.offsets({log.at(0): LATEST}) == {log.at(0): 2}
    log.broker.restart()
    assert cluster.offsets({log.at(0): LATEST}) == {log.at(0): 2}
    assert log.topic in cluster.topics()


def test_a_batch_larger_than_a_fetch_is_read_whole(log: Log) -> None:
    log.produce(0, 3, value=b"x" * 800_000)
    values = [value for table in log.read(0, 1, 3, fetch_bytes_max=1000) for value in table.column("value").to_pylist()]
    assert values == [b"x" * 800_000] * 2


def test_a_crash_in_the_middle_of_a_range_loses_and_repeats_nothing(log: Log) -> None:
    log.produce(0, 2000, value=b"x" * 100)
    reading = log.read(0, 0, 2000, fetch_bytes_max=10_000)
    offsets = next(reading).column("offset").to_pylist()
    assert len(offsets) < 1000
    log.broker.kill()
    log.broker.start()
    offsets += [offset for table in reading for offset in table.column("offset").to_pylist()]
    assert offsets == list(range(2000))


def test_deleted_records_are_gone(log: Log) -> None:
    log.produce(0, 10)
    log.delete_records(0, before=4)
    with pytest.raises(OffsetsGone) as reported:
        list(log.read(0, 2, 8))
    assert reported.value.gone == OffsetRange(log.topic, 0, 2, 4)


def test_settings_travel_to_executors(log: Log) -> None:
    assert pickle.loads(pickle.dumps(log.settings())) == log.settings()
