"""Reads of an archive without brokers: every archived record once, whatever happens to the segments meanwhile."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive_writer import CLUSTER, ArchivedLog
from log_fixture import START_MS

import cordwood.archive
from cordwood.archive import catalog, layout
from cordwood.archive.batches import ArchiveReader
from cordwood.archive.blocking import wait
from cordwood.archive.catalog import PartitionId
from cordwood.archive.cuts import CutObject, PinnedRange, cut_content
from cordwood.archive.store import StoreError
from cordwood.archive.tables import NoSuchCut, NoSuchTopic
from cordwood.columnar.errors import CorruptRecords, OffsetsGone, ReadError
from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.types import NEVER_EXPIRES

START = datetime.fromtimestamp(START_MS / 1000, UTC)
MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def log(tmp_path: Path) -> ArchivedLog:
    """Return an empty log with an archive."""
    return ArchivedLog(tmp_path / "archive")


def values(reader: pa.RecordBatchReader) -> list[str]:
    return [value.decode() for batch in reader for value in batch["value"].to_pylist()]


def read(log: ArchivedLog, **options: Any) -> list[str]:
    return values(cordwood.archive.open(log.writer.url).read(log.writer.topic, **options))


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange("orders", 0, start, end)


def reader_of(log: ArchivedLog) -> ArchiveReader:
    """Return a reader of the partition as it is now."""
    there = wait(
        catalog.read_partition(log.writer.store, PartitionId(CLUSTER, log.writer.topic_id, log.writer.partition))
    )
    return ArchiveReader(log.writer.store, there)


def filled(log: ArchivedLog, count: int = 60) -> list[str]:
    """Append and archive so many records, one a millisecond. Return their values."""
    there = [f"value {number:04} {'.' * 40}" for number in range(count)]
    for number, value in enumerate(there):
        log.append(value, key=f"key {number % 3}")
        log.now += 1
    log.upload()
    assert len(log.writer.archived) > 3
    return there


def test_a_topic_is_read_whole(log: ArchivedLog) -> None:
    there = filled(log)
    archive = cordwood.archive.open(log.writer.url)
    assert (archive.topics, archive.cluster_id, archive.offsets("orders")) == (["orders"], CLUSTER, {0: range(60)})
    table = archive.read("orders").read_all()
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert table["offset"].to_pylist() == list(range(60))
    assert [value.decode() for value in table["value"].to_pylist()] == there
    assert table["timestamp"].to_pylist() == [START + at * MILLISECOND for at in range(60)]


def test_a_range_of_offsets_downloads_no_other_intervals(log: ArchivedLog) -> None:
    there = filled(log)
    for start, end in ((0, 1), (7, 8), (13, 40), (59, 60), (50, 99), (30, 30), (-5, 3)):
        assert read(log, start=start, end=end) == there[max(start, 0) : end]
    reader = reader_of(log)
    assert [one.header.base_offset for each in reader.fetch(wanted(30, 31)) for one in each.batches] == [30]
    assert 0 < reader.bytes_read < 600


def test_partitions_are_read_one_after_the_other(tmp_path: Path) -> None:
    for partition in range(2):
        filled(ArchivedLog(tmp_path, partition=partition, partitions=3))
    archive = cordwood.archive.open(tmp_path.as_uri())
    table = archive.read("orders", start={0: 58, 1: 59}, columns=["partition", "offset"]).read_all()
    assert [tuple(row.values()) for row in table.to_pylist()] == [(0, 58), (0, 59), (1, 59)]
    assert archive.read("orders", partitions=[1], end=5).read_all().num_rows == 5
    assert archive.read("orders", partitions=[2]).read_all().num_rows == 0
    with pytest.raises(NoSuchTopic, match="has 3 partitions, and no partition 3"):
        archive.read("orders", partitions=[3])


def test_times_and_keys_select_records(log: ArchivedLog) -> None:
    there = filled(log)
    at = [START + number * MILLISECOND for number in range(61)]
    assert read(log, since=at[20]) == there[20:]
    assert read(log, until=at[20]) == there[:20]
    assert read(log, since=at[31] - MILLISECOND / 2, until=at[33] + MILLISECOND / 2) == there[31:34]
    assert read(log, since=at[60]) == []
    assert read(log, key=b"key 2", columns=["value"]) == there[2::3]
    with pytest.raises(ValueError, match="has no time zone"):
        read(log, since=at[0].replace(tzinfo=None))


def test_a_late_time_downloads_only_the_intervals_that_may_have_it(log: ArchivedLog) -> None:
    filled(log)
    reader = reader_of(log)
    late = [each.batches[-1].header.end for each in reader.fetch(wanted(0, 60), not_before_ms=START_MS + 58)]
    assert late == [60]
    assert 0 < reader.bytes_read < 600


def test_aborted_transactions_are_left_out_wherever_their_markers_are(log: ArchivedLog) -> None:
    log.append("before")
    log.send(0, "aborted", producer=7, transactional=True)
    log.send(0, "committed", producer=8, transactional=True)
    between = [f"between {number:040}" for number in range(30)]
    log.append(*between)
    log.abort(producer=7)
    log.commit(producer=8)
    log.append("after").upload()
    assert len(log.writer.archived) > 2
    assert read(log) == ["before", "committed", *between, "after"]
    assert read(log, end=2) == ["before"]
    assert read(log, start=1, end=3) == ["committed"]
    assert read(log, isolation="read_uncommitted") == ["before", "aborted", "committed", *between, "after"]


def test_a_transaction_whose_marker_is_not_archived_is_not_read(log: ArchivedLog) -> None:
    log.append("before")
    log.send(0, "in doubt", producer=7, transactional=True)
    log.append("at the end").flush()
    log.seal()
    log.abort(producer=7)
    log.upload(roll=False)
    assert log.writer.archive.end == 3
    assert read(log) == ["before"]
    assert read(log, isolation="read_uncommitted") == ["before", "in doubt", "at the end"]
    assert cordwood.archive.open(log.writer.url).offsets("orders") == {0: range(1)}
    log.append("after").upload()
    assert read(log) == ["before", "at the end", "after"]


def test_segments_of_two_leaders_overlap(log: ArchivedLog) -> None:
    there = filled(log)
    log.writer.repeat_before(1)
    log.writer.repeat_before(3)
    border = log.writer.archived[1].start_offset
    assert log.writer.archived[1].base_offset < border
    assert read(log) == there
    assert read(log, start=border - 1, end=border + 1) == there[border - 1 : border + 1]


def test_a_reader_goes_on_in_segments_that_were_compacted_meanwhile(log: ArchivedLog) -> None:
    there = filled(log, 200)
    coming = reader_of(log).fetch(wanted(0, 200))
    offsets = [one.header.base_offset for one in next(coming).batches]
    log.writer.compact(0, len(log.writer.archived) - 2, lambda header: header.base_offset % 2 == 0)
    offsets += [one.header.base_offset for fetched in coming for one in fetched.batches]
    assert offsets == sorted(set(offsets))
    assert set(range(0, 200, 2)) <= set(offsets)
    assert len(offsets) < 200
    assert read(log)[:3] == there[0:6:2]


def test_records_that_expire_meanwhile_are_reported(log: ArchivedLog) -> None:
    filled(log, 200)
    coming = reader_of(log).fetch(wanted(0, 200))
    next(coming)
    log.writer.expire(below=180)
    with pytest.raises(OffsetsGone, match="no longer in the archive") as error:
        list(coming)
    assert error.value.gone.end == log.writer.archive.start


def test_a_reader_begins_at_what_is_left(log: ArchivedLog) -> None:
    there = filled(log)
    log.writer.expire(below=25)
    assert log.writer.archive.start is not None
    assert read(log) == there[log.writer.archive.start :]


@pytest.mark.parametrize("which", [0, 1], ids=["batches", "state"])
def test_damage_is_reported_and_never_returned(log: ArchivedLog, which: int) -> None:
    there = filled(log)
    name = log.writer.names_of(log.writer.archived[2])[which]
    content = bytearray(wait(log.writer.store.get(name)))
    content[len(content) // 2] ^= 1
    wait(log.writer.store.delete([name]))
    wait(log.writer.store.put(name, bytes(content)))
    end = log.writer.archived[2].start_offset
    assert read(log, end=end - 1) == there[: end - 1]
    reader = cordwood.archive.open(log.writer.url).read("orders")
    with pytest.raises(CorruptRecords, match=f"orders-0 .* the object {name} of the archive"):
        values(reader)


def test_a_missing_object_is_damage_and_not_an_end(log: ArchivedLog) -> None:
    filled(log)
    log.writer.sweep(log.writer.archived[1:2])
    with pytest.raises(CorruptRecords, match="the archive lacks an object"):
        read(log)


def test_a_deleted_topic_is_not_read(log: ArchivedLog) -> None:
    filled(log)
    log.writer.put_topic(sequence=5, is_deleted=True)
    with pytest.raises(NoSuchTopic, match="it has none"):
        read(log)


def test_what_cannot_be_opened_says_why(log: ArchivedLog, tmp_path: Path) -> None:
    filled(log)
    with pytest.raises(StoreError, match="it has no archive"):
        cordwood.archive.open((tmp_path / "other").as_uri())
    with pytest.raises(StoreError, match=f"no archive of cluster barn; it has archives of the clusters {CLUSTER}"):
        cordwood.archive.open(log.writer.url, cluster="barn")
    with pytest.raises(StoreError, match="is not the URL of an object store"):
        cordwood.archive.open("ftp://somewhere")
    with pytest.raises(NoSuchTopic, match="no topic order: it has orders"):
        cordwood.archive.open(log.writer.url).read("order")
    with pytest.raises(ValueError, match="a record has no column colour"):
        read(log, columns=["colour"])


def put_cut(log: ArchivedLog, start: int, end: int, *, expires_ms: int = NEVER_EXPIRES) -> None:
    """Write the object of a cut named monday."""
    pinned = PinnedRange("orders", log.writer.topic_id, 0, start, end)
    cut = CutObject("monday", 0, expires_ms, (pinned,))
    wait(log.writer.store.put(layout.cut_name(CLUSTER, "monday", 0), cut_content(cut)))


def test_a_cut_is_read_from_its_start_to_its_end(log: ArchivedLog) -> None:
    there = filled(log)
    put_cut(log, 3, 20)
    assert read(log, cut="monday") == there[3:20]
    assert read(log, cut="monday", partitions=[]) == []
    with pytest.raises(ValueError, match="a cut has its own start and end"):
        read(log, cut="monday", start=4)


def test_a_cut_that_is_not_archived_whole_is_not_read(log: ArchivedLog) -> None:
    filled(log)
    put_cut(log, 3, 61)
    with pytest.raises(ReadError, match="offsets from 3 to 61 of orders-0, and the archive those from 0 to 60"):
        read(log, cut="monday")


def test_a_cut_that_is_unknown_or_over_is_not_read(log: ArchivedLog) -> None:
    filled(log)
    put_cut(log, 3, 20, expires_ms=1000)
    for name in ("monday", "tuesday"):
        with pytest.raises(NoSuchCut, match=f"no topic orders in the cut {name}: there is no such cut"):
            read(log, cut=name)
