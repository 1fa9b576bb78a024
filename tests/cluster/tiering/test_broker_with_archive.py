"""A broker with a directory as its archive: uploads, retention, what HTTP shows, and the end of a deleted topic."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from http_client import HttpClient

LONG_S = 60.0
VALUE = b"v" * 1000


class Archiver:
    """The broker, its clients, and its archive."""

    def __init__(self, broker: RunningBroker, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.http = HttpClient(broker.settings["http.listen"])

    def make(self, topic: str, **configs: str) -> None:
        new = NewTopic(topic, 1, 1, config={key.replace("_", "."): value for key, value in configs.items()})
        self.admin.create_topics([new])[topic].result()

    def configure_group(self, group_id: str, **configs: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        group = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=entries)
        self.admin.incremental_alter_configs([group])[group].result()

    def produce(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "batch.size": 4000})
        for _ in range(count):
            producer.produce(topic, VALUE)
            producer.poll(0)
        assert producer.flush(LONG_S) == 0

    def row(self, topic: str) -> dict[str, Any]:
        (row,) = self.http.get(f"/v1/archive?topic={topic}").json["partitions"]
        return dict(row)

    def objects(self, kind: str = "") -> list[Path]:
        return sorted(path for path in self.directory.rglob("*") if path.is_file() and kind in str(path))


@pytest.fixture(scope="module")
def archiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiver]:
    data = tmp_path_factory.mktemp("archiving")
    broker = RunningBroker(
        data / "data",
        archive_url=f"file://{data}/archive",
        archive_grace_ms="500",
        archive_roll_ms="500",
        log_segment_bytes="20000",
        log_retention_check_interval_ms="200",
        http_listen=f"127.0.0.1:{free_port()}",
    ).start()
    try:
        yield Archiver(broker, data / "archive")
    finally:
        broker.stop()


def test_sealed_segments_are_archived_and_the_rest_is_not(archiving: Archiver) -> None:
    archiving.make("orders", remote_storage_enable="true")
    archiving.produce("orders", 100)
    wait_until(lambda: archiving.row("orders")["backlog_segments"] == 0, LONG_S, "the uploads")
    row = archiving.row("orders")
    assert (row["start"], row["local_start"], row["uploads"]) == (0, 0, 0)
    assert 60 < row["end"] < 100
    assert row["bytes"] > 60 * len(VALUE)
    status = archiving.http.get("/v1/archive").json
    assert (status["has_archive"], status["failure"]) == (True, None)
    metrics = archiving.http.get("/metrics").content.decode()
    assert "cordwood_archive_backlog_segments 0\n" in metrics
    assert f"cordwood_archive_segments {row['segments']}\n" in metrics


def test_retention_deletes_from_the_archive(archiving: Archiver) -> None:
    archiving.make("short", remote_storage_enable="true", retention_bytes="50000")
    archiving.produce("short", 200)
    wait_until(lambda: (archiving.row("short")["start"] or 0) > 100, LONG_S, "retention")
    wait_until(lambda: archiving.row("short")["removed"] == 0, LONG_S, "deletions")
    row = archiving.row("short")
    name = next(path for path in archiving.objects(".log") if f"{row['end']:020d}" in path.name)
    segments = [path for path in archiving.objects("/segments/") if path.parent == name.parent]
    assert len(segments) == 2 * row["segments"]


def test_a_deleted_topic_leaves_no_object(archiving: Archiver) -> None:
    before = topic_ids(archiving)
    archiving.make("passing", remote_storage_enable="true")
    archiving.produce("passing", 100)
    wait_until(lambda: archiving.row("passing")["segments"] > 0, LONG_S, "an upload")
    wait_until(lambda: topic_ids(archiving) > before, LONG_S, "the object of the topic")
    (topic_id,) = topic_ids(archiving) - before
    archiving.admin.delete_topics(["passing"])["passing"].result()
    wait_until(lambda: not archiving.objects(topic_id), LONG_S, "the end of its objects")


def test_groups_are_archived_soon_without_a_config(archiving: Archiver) -> None:
    archiving.make("read")
    archiving.produce("read", 1)
    consumer = Consumer(
        {"bootstrap.servers": archiving.broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["read"])
    message = consumer.poll(LONG_S)
    assert message is not None
    consumer.commit(asynchronous=False)
    wait_until(lambda: archived(archiving, "__consumer_offsets"), LONG_S, "the group's offsets in the archive")
    consumer.close()
    assert archiving.http.get("/v1/archive?topic=read").json["total"] == 0


def test_a_share_group_gets_archived_records(archiving: Archiver) -> None:
    archiving.make("queue", remote_storage_enable="true", local_retention_bytes="0")
    archiving.produce("queue", 100)
    wait_until(lambda: archiving.row("queue")["local_start"] > 50, LONG_S, "local retention")
    archiving.configure_group("workers", share_auto_offset_reset="earliest")
    taken: set[int | None] = set()
    with ShareConsumer({"bootstrap.servers": archiving.broker.bootstrap, "group.id": "workers"}) as consumer:
        consumer.subscribe(["queue"])

        def has_all() -> bool:
            taken.update(message.offset() for message in consumer.poll(1.0) if message.error() is None)
            return len(taken) == 100

        wait_until(has_all, LONG_S, "all records, of which the disk has the last only")
    assert taken == set(range(100))


def test_dead_letters_are_copies_of_archived_records(archiving: Archiver) -> None:
    archiving.make("spoiled", remote_storage_enable="true", local_retention_bytes="0")
    archiving.make("dlq.spoiled", errors_deadletterqueue_group_enable="true")
    archiving.produce("spoiled", 100)
    wait_until(lambda: archiving.row("spoiled")["local_start"] > 50, LONG_S, "local retention")
    archiving.configure_group(
        "cooks",
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name="dlq.spoiled",
        errors_deadletterqueue_copy_record_enable="true",
    )
    taken: list[dict[str, Any]] = []
    while not taken:
        wanted = {"topics": ["spoiled"], "max_records": 3, "wait_ms": 10_000}
        taken = archiving.http.post("/v1/queues/cooks/take", wanted).json["records"]
    assert [record["offset"] for record in taken] == [0, 1, 2]
    archiving.http.post("/v1/queues/cooks/reject", {"receipts": [record["receipt"] for record in taken]})
    wait_until(lambda: len(archiving.http.values("dlq.spoiled")) == 3, LONG_S, "the dead letters")
    assert archiving.http.values("dlq.spoiled") == [VALUE.decode()] * 3


def topic_ids(archiving: Archiver) -> set[str]:
    return {path.parent.name for path in archiving.objects("/topics/")}


def archived(archiving: Archiver, topic: str) -> bool:
    rows = archiving.http.get(f"/v1/archive?topic={topic}").json["partitions"]
    return any(row["segments"] for row in rows)


def test_a_broker_without_an_archive_refuses_archived_topics(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data").start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        new = NewTopic("orders", 1, 1, config={"remote.storage.enable": "true"})
        with pytest.raises(KafkaException, match=r"set archive\.url"):
            admin.create_topics([new])["orders"].result()
    finally:
        broker.stop()


def test_a_damaged_checkpoint_costs_no_aborted_transaction_of_archived_records(tmp_path: Path) -> None:
    """The transaction has records in the archive alone, and its marker is in the active segment."""
    broker = RunningBroker(
        tmp_path / "data",
        archive_url=f"file://{tmp_path}/archive",
        log_segment_bytes="20000",
        log_retention_check_interval_ms="200",
        http_listen=f"127.0.0.1:{free_port()}",
    ).start()
    try:
        archiver = Archiver(broker, tmp_path / "archive")
        archiver.make("payments", remote_storage_enable="true", local_retention_bytes="1", file_delete_delay_ms="0")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("payments", b"aborted")
        producer.flush(LONG_S)
        archiver.produce("payments", 100)
        producer.abort_transaction()
        topics = broker.data / "topics"
        wait_until(lambda: not list(topics.glob(f"*/0/{0:020}.log")), LONG_S, "local retention")
        assert set(values_of(broker, "payments", 100)) == {VALUE}
        broker.kill()
        (recovery,) = topics.glob("*/0/recovery")
        content = bytearray(recovery.read_bytes())
        content[20] ^= 1
        recovery.write_bytes(content)
        broker.start()
        assert set(values_of(broker, "payments", 100)) == {VALUE}
    finally:
        broker.stop()


def values_of(broker: RunningBroker, topic: str, count: int) -> list[bytes]:
    """Return the first `count` values that a read_committed consumer gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def has_all() -> bool:
        found.extend(message.value() or b"" for message in consumer.consume(count, 0.2) if message.error() is None)
        return len(found) >= count

    try:
        wait_until(has_all, LONG_S, f"{count} records")
    finally:
        consumer.close()
    return found
