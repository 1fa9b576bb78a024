"""Reads over archive and brokers: every record once, archived ones from the store, and the tail from brokers."""

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from archived_topic import ArchivedTopic
from command import in_process
from spark_scenario import Driver, Log, SparkScenario, read_batch

from cordwood.archive.blocking import wait
from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.archive import TaskArchive, split
from cordwood.spark.batch_source import BatchReader
from cordwood.spark.errors import WrongOption
from cordwood.spark.range_reader import read_range
from cordwood.spark.read_options import ReadMode, read_options
from cordwood.spark.task_metrics import TaskMetrics
from cordwood.spark.tasks import OffsetRangePartition
from cordwood.storage.types import TopicPartition

VALUES = Columns((Column.VALUE,))


@pytest.fixture
def topic(log: Log, tmp_path: Path) -> ArchivedTopic:
    """Return a topic of ten records, of which all but the last two are archived."""
    return ArchivedTopic(log, tmp_path).append(*"abcdefghij").upload(0, 3).upload(3, 8)


def batch_reader(topic: ArchivedTopic, **options: str) -> BatchReader:
    given = {"bootstrapServers": topic.log.bootstrap, **topic.options, **options}
    return BatchReader(read_options(given, ReadMode.BATCH), VALUES)


def test_archived_records_come_from_the_store_and_the_tail_from_brokers(topic: ArchivedTopic) -> None:
    assert topic.read() == list("abcdefghij")
    both = topic.bytes_read()
    assert both["archive_bytes"] == topic.archive.archive.size
    border = f'{{"{topic.topic}": {{"0": 8}}}}'
    assert topic.read(startingOffsets=border) == ["i", "j"]
    assert topic.bytes_read() == {"archive_bytes": 0, "broker_bytes": both["broker_bytes"]}
    assert topic.read(endingOffsets=border) == list("abcdefgh")
    assert topic.bytes_read() == {"archive_bytes": both["archive_bytes"], "broker_bytes": 0}


def test_what_was_written_before_the_archive_comes_from_brokers(log: Log, tmp_path: Path) -> None:
    topic = ArchivedTopic(log, tmp_path).append(*"abcdefgh").upload(3, 6)
    assert topic.read() == list("abcdefgh")
    assert topic.read(minPartitions="5") == list("abcdefgh")
    assert topic.read(maxRecordsPerPartition="1") == list("abcdefgh")


def test_a_topic_without_an_archive_comes_from_brokers(log: Log, tmp_path: Path) -> None:
    topic = ArchivedTopic(log, tmp_path).append("a", "b")
    assert topic.read() == ["a", "b"]
    assert topic.bytes_read()["archive_bytes"] == 0


def test_segments_that_are_compacted_after_planning_are_followed(topic: ArchivedTopic) -> None:
    reader = batch_reader(topic)
    parts = reader.partitions()
    topic.archive.compact(0, 2, lambda header: header.base_offset % 2 == 0)
    found = [value for part in parts for batch in reader.read(part) for value in batch["value"].to_pylist()]
    assert found == [b"a", b"c", b"e", b"g", b"h", b"i", b"j"]


def test_segments_that_expire_while_they_are_read_come_from_brokers(
    topic: ArchivedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    reader = batch_reader(topic)
    parts = reader.partitions()
    assert isinstance(parts[0], OffsetRangePartition)
    assert parts[0].archived is not None
    archive = TaskArchive(parts[0].archived, parts[0].client.isolation)
    assert archive.next_range(parts[0].value) == parts[0].value
    topic.archive.expire(below=3)
    metrics = TaskMetrics()
    batches = read_range(parts[0].client, parts[0].value, VALUES, archive=archive, metrics=metrics)
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [*map(str.encode, "abcdefgh")]
    assert "reading from brokers in place of the archive: " in caplog.text
    assert metrics.broker_bytes > 0


@pytest.mark.parametrize(("at", "which"), [(0, 0), (0, 1), (1, 1)], ids=["batches", "state", "last state"])
def test_damage_in_the_store_costs_no_record_that_brokers_have(
    topic: ArchivedTopic, at: int, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic.archive.names_of(topic.archive.archived[at])[which]
    content = bytearray(wait(topic.archive.store.get(name)))
    content[len(content) // 2] ^= 1
    wait(topic.archive.store.delete([name]))
    wait(topic.archive.store.put(name, bytes(content)))
    with caplog.at_level(logging.WARNING):
        assert topic.read() == list("abcdefghij")
    assert f"the object {name} of the archive" in caplog.text


def test_a_stream_reads_both_and_runs_a_batch_again_with_the_same_tasks(topic: ArchivedTopic) -> None:
    driver = Driver(topic.log.bootstrap, startingOffsets="earliest", **topic.options)
    start = driver.begin()
    end = driver.all_there_is(start)
    before = [part.value for part in driver.reader.partitions(start, end)]
    topic.upload(8, 10)
    assert [part.value for part in driver.reader.partitions(start, end)] == before
    assert driver.read(start, end) == list("abcdefghij")


def test_a_batch_is_split_where_the_archive_ends_and_between_large_segments() -> None:
    place, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    ranges = [OffsetRange(*place, 5, 100), OffsetRange(*other, 0, 10)]
    assert list(split(ranges, {place: [0, 5, 40, 90, 120]})) == [
        OffsetRange(*place, 5, 40),
        OffsetRange(*place, 40, 90),
        OffsetRange(*place, 90, 100),
        OffsetRange(*other, 0, 10),
    ]


def test_options_that_cannot_be_used_say_why(log: Log, tmp_path: Path) -> None:
    given = {"bootstrapServers": log.bootstrap, "subscribe": "orders"}
    with pytest.raises(WrongOption, match=r"archive\.url: 'ftp://x' is not the URL of an object store"):
        read_options({**given, "archive.url": "ftp://x"})
    with pytest.raises(WrongOption, match=r"need archive\.url"):
        read_options({**given, "archive.aws_region": "north"})
    with pytest.raises(WrongOption, match=r"archive\.url: .*missing: No such file"):
        read_options({**given, "archive.url": "s3://x/y", "archive.credentials.file": str(tmp_path / "missing")})


def test_credentials_of_the_store_reach_tasks_and_no_repr(topic: ArchivedTopic) -> None:
    reader = batch_reader(topic, **{"archive.aws_secret_access_key": "hush"})
    parts = reader.partitions()
    assert "hush" not in f"{reader!r} {parts!r} {vars(reader)} {[vars(part) for part in parts]}"
    sent = pickle.loads(pickle.dumps(parts))[0].archived
    assert ("aws_secret_access_key", "hush") in sent.settings.store


def test_spark_reads_archive_and_tail(topic: ArchivedTopic, story: SparkScenario) -> None:
    table = story.table(**topic.options)
    assert sorted(row.value.decode() for row in table.collect()) == list("abcdefghij")
    assert topic.bytes_read()["archive_bytes"] == topic.archive.archive.size


@pytest.fixture
def cut(topic: ArchivedTopic) -> Iterator[str]:
    """Yield the name of a cut of the topic's ten records, after which it has two more."""
    name = f"{topic.topic}-monday"
    in_process("cut", "create", name, topic.topic, bootstrap=topic.log.bootstrap)
    topic.append("k", "l")
    yield name
    in_process("cut", "drop", name, bootstrap=topic.log.bootstrap)


def test_a_cut_has_the_same_records_on_every_run(topic: ArchivedTopic, cut: str) -> None:
    assert read_batch(topic.log.bootstrap, cut=cut) == list("abcdefghij")
    assert topic.read(cut=cut) == list("abcdefghij")
    assert topic.bytes_read()["archive_bytes"] == topic.archive.archive.size
    topic.append("m").upload(8, 11)
    assert topic.read(cut=cut) == list("abcdefghij")
    assert topic.bytes_read()["broker_bytes"] == 0


def test_a_cut_of_a_compacted_topic_is_read_from_brokers(topic: ArchivedTopic, cut: str) -> None:
    in_process("topic", "alter", topic.topic, "--config", "cleanup.policy=compact", bootstrap=topic.log.bootstrap)
    assert topic.read(cut=cut) == list("abcdefghij")
    assert topic.bytes_read()["archive_bytes"] == 0


def test_a_cut_that_cannot_be_read_says_why(topic: ArchivedTopic, cut: str) -> None:
    with pytest.raises(WrongOption, match="there is no cut 'tuesday'"):
        topic.read(cut="tuesday")
    with pytest.raises(WrongOption, match=f"the cut {cut} has no topic other: it has {topic.topic}"):
        read_batch(topic.log.bootstrap, cut=cut, subscribe="other")
    with pytest.raises(WrongOption, match="leave out startingOffsets"):
        topic.read(cut=cut, startingOffsets="earliest")
    with pytest.raises(WrongOption, match=r"cut is for spark\.read, and this is spark\.readStream"):
        Driver(topic.log.bootstrap, **topic.options, cut=cut)
