"""`cordwood archive`: a cluster of three that has lost its disks comes back with one command."""

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from archived_log import CLUSTER, ArchivedLog
from broker_fixture import wait_until
from command import cordwood, in_process
from confluent_kafka import Consumer, Producer, TopicPartition
from local_cluster import LocalCluster
from log_fixture import TOPIC_ID, LogFixture

from cordwood.archive.obstore_store import open_store
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.raft import storage
from cordwood.cluster.metadata.raft.machine import Machine
from cordwood.storage.real_disk import RealDisk
from cordwood.storage.steps import at_once

BROKERS = (1, 2, 3)
RECORDS = 3000
GROUP = "woodcutters"
READ_S = 30.0
ARCHIVED_S = 60.0

Row = tuple[int, int, bytes | None, bytes | None, int]
"""Partition, offset, key, value and timestamp of a record."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "cluster", len(BROKERS))
    try:
        yield cluster
    finally:
        cluster.end()


def log_dir(cluster: LocalCluster, broker_id: int) -> Path:
    return cluster.directory / f"broker-{broker_id}" / "data"


def image_of(cluster: LocalCluster) -> Image:
    """Return the metadata of stopped brokers."""
    found = storage.read(RealDisk(), str(log_dir(cluster, 1) / "metadata"))
    machine = Machine(found.image, found.image_term, random.Random(1))
    at_once(machine.apply(found.log.between(found.image.index, found.log.end)))
    return machine.image


def records(cluster: LocalCluster) -> list[Row]:
    """Return all records of the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("logs", partition, 0) for partition in range(3)])
    found: list[Row] = []
    while len(found) < RECORDS:
        some = consumer.consume(RECORDS, READ_S)
        assert some, f"{len(found)} records"
        assert not any(one.error() for one in some)
        found += [(one.partition(), one.offset(), one.key(), one.value(), one.timestamp()[1]) for one in some]
    consumer.close()
    return sorted(found)


def committed(cluster: LocalCluster) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    places = consumer.committed([TopicPartition("logs", partition) for partition in range(3)], READ_S)
    consumer.close()
    return [place.offset for place in places]


def produce(cluster: LocalCluster) -> int:
    """Produce RECORDS records with an idempotent producer."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("logs", str(number).encode(), str(number % 10).encode())
    return int(producer.flush(READ_S))


def ends(cluster: LocalCluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the end offsets of the partitions that have records."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "measure"})
    found = {at: consumer.get_watermark_offsets(TopicPartition(topic, at), READ_S)[1] for at in range(partitions)}
    consumer.close()
    return {at: end for at, end in found.items() if end}


def archived_ends(url: str, topic: str) -> dict[int, int]:
    shown = in_process("archive", "status", "--url", url, "--json")
    rows = shown.json if shown.exit_code == 0 else []
    return {row["partition"]: row["end"] for row in rows if row["topic"] == topic and row["end"]}


def has_archived(url: str, topic: str, ends: dict[int, int]) -> bool:
    archived = archived_ends(url, topic)
    return all(archived.get(partition, 0) >= end for partition, end in ends.items())


def test_a_cluster_that_has_lost_all_its_disks_is_restored(cluster: LocalCluster, tmp_path: Path) -> None:
    url = (tmp_path / "archive").as_uri()
    settings = ("archive.url=" + url, "archive.roll.ms=500", "log.roll.ms=500", "log.retention.check.interval.ms=500")
    cluster.up(*(word for one in settings for word in ("--set", one)))
    created = cordwood(
        *("topic", "create", "logs", "--partitions", "3", "--replication-factor", "3"),
        *("--config", "remote.storage.enable=true", "--config", "segment.ms=500"),
        bootstrap=cluster.bootstrap,
    )
    assert created.exit_code == 0, created.stderr
    assert produce(cluster) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("logs", at, 100 + at) for at in range(3)], asynchronous=False)
    consumer.close()
    before, offsets = records(cluster), ends(cluster, "__consumer_offsets", 50)
    wait_until(lambda: archived_ends(url, "logs") == ends(cluster, "logs", 3), ARCHIVED_S, "archived records")
    wait_until(lambda: has_archived(url, "__consumer_offsets", offsets), ARCHIVED_S, "archived group offsets")
    for broker_id in BROKERS:
        cluster.kill(broker_id)
    image = image_of(cluster)
    log_dirs = {broker_id: log_dir(cluster, broker_id) for broker_id in BROKERS}
    for directory in log_dirs.values():
        shutil.rmtree(directory)

    words = [word for broker_id in BROKERS for word in ("--log-dir", f"{broker_id}={log_dirs[broker_id]}")]
    restored = in_process("archive", "restore", "--url", url, *words)
    assert restored.exit_code == 0, restored.stderr
    assert "The brokers may start." in restored.stderr
    cluster.up()
    assert records(cluster) == before
    assert committed(cluster) == [100, 101, 102]
    assert produce(cluster) == 0
    wait_until(lambda: archived_ends(url, "logs") == ends(cluster, "logs", 3), ARCHIVED_S, "more archived records")
    assert in_process("archive", "verify", "--url", url).exit_code == 0
    assert cluster.down().exit_code == 0
    again = image_of(cluster)
    topic = again.topics_by_name["logs"]
    assert (again.cluster_id, topic.id) == (image.cluster_id, image.topics_by_name["logs"].id)
    assert again.next_producer_id > image.next_producer_id


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Return the URL of an archive of one topic with one partition."""
    url = (tmp_path / "archive").as_uri()
    log = LogFixture()
    for number in range(40):
        log.send(number, f"value {number:040}")
    archived = ArchivedLog(open_store(url), log.flush())

    async def scenario() -> None:
        await archived.upload()
        await archived.describe("barn")

    asyncio.run(scenario())
    return url


def test_status_shows_offsets_and_sizes(archive: str) -> None:
    [row] = in_process("archive", "status", "--url", archive, "--json").json
    assert (row["topic"], row["partition"], row["start"], row["findings"]) == ("barn", 0, 0, 0)
    assert row["end"] > 0
    assert "barn" in in_process("archive", "status", "--url", archive).text


def test_verify_finds_a_missing_object(archive: str, tmp_path: Path) -> None:
    assert "no damage" in in_process("archive", "verify", "--url", archive).text
    next((tmp_path / "archive" / "segments" / CLUSTER / str(TOPIC_ID) / "0").glob("*.state")).unlink()
    damaged = in_process("archive", "verify", "--url", archive)
    assert damaged.exit_code == 1
    assert "barn-0: segments/" in damaged.text
    assert in_process("archive", "verify", "--url", archive, "--json").json["ok"] is False


def test_sweep_deletes_only_when_asked_to(archive: str, tmp_path: Path) -> None:
    name = f"{0:020}-{10:020}-{TOPIC_ID}.log"
    orphan = tmp_path / "archive" / "segments" / CLUSTER / str(TOPIC_ID) / "0" / name
    orphan.write_bytes(b"orphan")
    then = orphan.stat().st_mtime - 3600
    os.utime(orphan, (then, then))
    words = ["archive", "sweep", "--url", archive]
    assert "0 objects" in in_process(*words).stderr
    assert "1 objects, 6 bytes, may be deleted" in in_process(*words, "--older-than-hours", "0").stderr
    assert orphan.exists()
    assert in_process(*words, "--older-than-hours", "0", "--delete").exit_code == 0
    assert not orphan.exists()
    assert in_process("archive", "verify", "--url", archive).exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--log-dir", "here"], "is not ID=DIRECTORY"),
        (["--log-dir", "1=a", "--log-dir", "1=b"], "each --log-dir needs its own broker and directory"),
        (["--log-dir", "1=a", "--brokers", "2,3"], "--brokers must name every broker"),
        (["--log-dir", "1=a", "--voters", "one"], "--voters takes ids"),
    ],
)
def test_mistakes_of_restore_are_sentences(archive: str, words: list[str], sentence: str) -> None:
    refused = in_process("archive", "restore", "--url", archive, *words)
    assert refused.exit_code == 2
    assert sentence in refused.stderr


def test_an_empty_store_has_no_archive(tmp_path: Path) -> None:
    refused = in_process("archive", "status", "--url", (tmp_path / "nothing").as_uri())
    assert (refused.exit_code, "has no archive" in refused.stderr) == (1, True)
    assert in_process("archive", "status", "--url", "nonsense").exit_code == 1
