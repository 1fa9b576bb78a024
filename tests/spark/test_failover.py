"""Spark reads during broker failures: exactly the committed records, each once. CORDWOOD_KILLS=20 is the full form."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import delta_copier
import pytest
import topic_copier
from broker_faults import KILLS, BrokerFaults
from broker_fixture import wait_until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from local_cluster import LocalCluster
from pyspark.sql import DataFrame, SparkSession
from spark_scenario import Log, SparkScenario, read_batch

RECORDS = 6_000
DRIVER_S = 120.0
COPIERS = (topic_copier, delta_copier) if KILLS > 2 else (topic_copier,)
"""What a killed driver writes with: the exactly-once sink, and in the full form also Delta's transactions."""
SMALL_FETCHES = {"fetchBytes": "16384", "minPartitions": "6"}
"""Small fetches make many requests, so that a failure meets a read between two of them."""

pytestmark = pytest.mark.timeout(180 + 90 * KILLS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Run three brokers."""
    running = LocalCluster(tmp_path_factory.mktemp("failover") / "cluster", 3)
    running.up()
    try:
        yield running
    finally:
        running.end()


@pytest.fixture
def story(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> SparkScenario:
    """Return a scenario of Spark and the three brokers."""
    return SparkScenario(spark, Log(cluster.bootstrap), tmp_path)


def make_topic(cluster: LocalCluster, name: str, partitions: int = 3) -> BrokerFaults:
    """Create a topic with a replica on every broker. Return the faults to inject on it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, cluster.count)])[name].result(30)
    return BrokerFaults(cluster, name)


def append(cluster: LocalCluster, topic: str, begin: int, end: int) -> list[str]:
    """Produce acknowledged records numbered from `begin` to `end` over all partitions. Return their values."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(begin, end):
        producer.produce(topic, f"{number:08}".encode(), f"{number}".encode())
        producer.poll(0)
    assert producer.flush(60) == 0
    return [f"{number:08}" for number in range(begin, end)]


def values(table: DataFrame) -> list[str]:
    return sorted(row.value for row in table.selectExpr("cast(value as string) as value").collect())


@pytest.mark.parametrize("fault", [BrokerFaults.kill_a_leader, BrokerFaults.restart_a_broker])
def test_a_read_in_trouble_returns_every_record_once(
    cluster: LocalCluster, story: SparkScenario, fault: Callable[[BrokerFaults], None]
) -> None:
    name = fault.__name__
    faults = make_topic(cluster, name)
    sent = append(cluster, name, 0, RECORDS)
    assert values(story.table(subscribe=name)) == sent
    reads = 0
    with faults.going_on(lambda: fault(faults)) as is_over:
        # Reads follow each other without a pause, so that each fault meets one of them.
        while not is_over():
            assert values(story.table(subscribe=name, **SMALL_FETCHES)) == sent
            reads += 1
    assert reads


def test_a_stream_that_stops_at_random_writes_every_record_once(cluster: LocalCluster, story: SparkScenario) -> None:
    rng = random.Random(6)
    copy = Copy(cluster, story, "stopped", delta_copier, "table")
    for _ in range(KILLS):
        query = copy.writer.start()
        copy.append(1500)
        # Spark refuses a checkpoint whose first offsets were being written when the query was stopped.
        wait_until(lambda: copy.has_begun, DRIVER_S, "the stream's first batch")
        query.awaitTermination(rng.uniform(0.5, 3.0))
        # Interrupts the micro-batch before its write, during it, or between the write and Spark's commit.
        query.stop()
    copy.finish()
    assert copy.values() == copy.sent


@pytest.mark.parametrize("copier", COPIERS, ids=lambda copier: copier.__name__)
def test_a_driver_that_is_killed_at_random_has_written_every_record_once(
    cluster: LocalCluster, story: SparkScenario, copier: ModuleType
) -> None:
    rng = random.Random(7)
    target = f"copy-by-{copier.__name__}"
    faults = make_topic(cluster, target)
    copy = Copy(cluster, story, copier.__name__, copier, target)
    for _ in range(max(1, KILLS - 1)):
        run_and_kill_a_driver(copy, rng.uniform(0.0, 2.0))
    with faults.going_on(faults.kill_a_leader, times=1):
        copy.finish()
    assert copy.values() == copy.sent


def run_and_kill_a_driver(copy: "Copy", after_s: float) -> None:
    """Kill a driver and its JVM with SIGKILL, `after_s` seconds after its first written batch."""
    rows = len(copy.values())
    driver = subprocess.Popen([sys.executable, copy.program, *copy.places], start_new_session=True)
    try:
        copy.append(6000)
        wait_until(lambda: len(copy.values()) > rows, DRIVER_S, "the driver's first batch")
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(after_s)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


class Copy:
    """A topic, and the Delta table or the topic to which a stream copies it."""

    def __init__(
        self, cluster: LocalCluster, story: SparkScenario, topic: str, copier: ModuleType, target: str
    ) -> None:
        make_topic(cluster, topic)
        if copier is delta_copier:
            target = str(story.directory / target)
        self._cluster, self._topic, self._copier, self._target = cluster, topic, copier, target
        self.program = str(copier.__file__)
        self.places = (cluster.bootstrap, topic, target, str(story.directory / "checkpoint"))
        self.writer = copier.copying(story.spark, *self.places)
        self.sent: list[str] = []

    @property
    def has_begun(self) -> bool:
        """Whether the stream has written down where its first batch ends."""
        return Path(self.places[-1], "offsets", "0").is_file()

    def append(self, count: int) -> None:
        """Produce `count` more acknowledged records."""
        self.sent += append(self._cluster, self._topic, len(self.sent), len(self.sent) + count)

    def finish(self) -> None:
        """Let the stream copy the rest, and wait for its end."""
        assert self.writer.trigger(availableNow=True).start().awaitTermination(DRIVER_S)

    def values(self) -> list[str]:
        """Return the sorted values of the copy."""
        values: list[str] = self._copier.copied(self._cluster.bootstrap, self._target)
        return values


def test_no_record_above_the_watermark_is_read(cluster: LocalCluster) -> None:
    faults = make_topic(cluster, "uncommitted", partitions=1)
    committed = append(cluster, "uncommitted", 0, 10)
    bootstrap = cluster.bootstrap.split(",")[faults.leader() - 1]
    with faults.followers_held_still():
        written = appended_by_the_leader_alone(bootstrap, "uncommitted", 5)
        assert written == 5
        for isolation in ("read_committed", "read_uncommitted"):
            options = {"subscribe": "uncommitted", "isolation": isolation, "requestTimeoutMs": "2s"}
            assert read_batch(bootstrap, **options) == committed


def appended_by_the_leader_alone(bootstrap: str, topic: str, count: int) -> int:
    """Produce records with acks=1 to the leader's log alone. Return how many the leader acknowledged."""
    confirmed: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1})
    for _ in range(count):
        producer.produce(topic, b"only here", partition=0, on_delivery=lambda error, _: error or confirmed.append(1))
    assert producer.flush(30) == 0
    return len(confirmed)
