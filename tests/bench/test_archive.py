"""The measurements of the archive and of compaction: what they write, and how their reads are compared."""

import pytest

from cordwood.bench.archive.phases import PARTITIONS, ArchiveWorkload
from cordwood.bench.archive.spark import Differs, _compare, _newest
from cordwood.bench.compaction.load import RECORDS_PER_BATCH, CommitFrame, keyed_batches
from cordwood.storage.records import decode


def test_a_disk_has_room_for_its_share_of_the_topic() -> None:
    work = ArchiveWorkload(20_000_000_000, 1_000_000_000, 600)
    assert PARTITIONS * 6 * work.segment_bytes <= work.local_bytes
    assert work.rounds * work.round_bytes == work.archived_bytes


def test_keyed_batches_have_distinct_keys_and_right_checksums() -> None:
    batches = list(keyed_batches(2 * RECORDS_PER_BATCH))
    keys = {record.key for batch in batches for record in decode(batch)}
    assert (len(batches), len(keys)) == (2, 2 * RECORDS_PER_BATCH)


def test_a_commit_frame_has_one_offset_for_all_partitions() -> None:
    frame = CommitFrame("group-1", 100)
    assert frame.at(1 << 40).count((1 << 40).to_bytes(8, "big")) == 100
    assert len(frame.at(1)) == len(frame.at(1 << 40))


def test_a_difference_between_spark_and_a_consumer_is_named() -> None:
    rows = [(0, 0, b"k", b"v", 1), (0, 1, b"k", None, 2), (0, 2, b"other", b"w", 3)]
    _compare("orders", rows, list(rows))
    with pytest.raises(Differs, match="2 rows of 3; it lacks"):
        _compare("orders", rows[:2], rows)
    assert _newest(rows) == [rows[2]]
