"""A broker that archives: Spark's readers over archive and brokers equal a consumer, while segments seal and move."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spark_scenario import read_batch, wait_for_markers

import cordwood.archive

LONG_S = 60.0
CONFIGS = {"remote.storage.enable": "true", "segment.bytes": "4000", "local.retention.bytes": "8000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Run a broker with a directory as its archive, and little of each topic on its disk."""
    url = (tmp_path / "archive").as_uri()
    broker = RunningBroker(
        tmp_path / "data", archive_url=url, log_retention_check_interval_ms="100", log_segment_delete_delay_ms="0"
    ).start()
    try:
        yield broker
    finally:
        broker.stop()


def produce(broker: RunningBroker, step: int) -> None:
    """Write plain records, and a committed and an aborted transaction between them."""
    plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    within = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "linger.ms": 0})
    within.init_transactions()
    for outcome in (within.commit_transaction, within.abort_transaction):
        within.begin_transaction()
        for number in range(15):
            within.produce("orders", f"{step} {outcome.__name__} {number} {'.' * 100}".encode())
            plain.produce("orders", f"{step} plain {outcome.__name__} {number} {'.' * 100}".encode())
            assert within.flush(LONG_S) == plain.flush(LONG_S) == 0
        outcome()


def consumed(broker: RunningBroker) -> list[str]:
    """Return the values of all committed records, sorted, as a consumer reads them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(LONG_S)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return sorted(found)
        found.append((message.value() or b"").decode())


def test_archive_and_tail_equal_a_consumer_at_any_moment(broker: RunningBroker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config=CONFIGS)])["orders"].result()
    url, metrics = (tmp_path / "archive").as_uri(), tmp_path / "metrics"
    options = {"subscribe": "orders", "archive.url": url, "readMetricsPath": str(metrics)}
    for step in range(4):
        produce(broker, step)
        wait_for_markers(broker.bootstrap, "orders")
        assert read_batch(broker.bootstrap, **options) == consumed(broker)

    there = consumed(broker)
    assert len(there) == 4 * 45
    wait_until(lambda: archived(url) > len(there), LONG_S, "the uploads")
    end = archived(url)
    for path in metrics.iterdir():
        path.unlink()
    border = json.dumps({"orders": {"0": end}})
    before = read_batch(broker.bootstrap, **options, endingOffsets=border)
    assert sum(json.loads(path.read_text())["broker_bytes"] for path in metrics.iterdir()) == 0
    reader = cordwood.archive.open(url).read("orders", end=end)
    assert sorted(value.decode() for batch in reader for value in batch["value"].to_pylist()) == before
    assert sorted([*before, *read_batch(broker.bootstrap, **options, startingOffsets=border)]) == there


def archived(url: str) -> int:
    """Return the end of what can be read from the archive; 0 if nothing can."""
    archive = cordwood.archive.open(url)
    return archive.offsets("orders")[0].stop if "orders" in archive.topics and archive.offsets("orders") else 0
