"""The measurements of the archive and of compaction: what they write, and how their reads are compared."""

import pytest

from cordwood.bench.archive.phases import PARTITIONS, ArchiveWorkload
from cordwood.bench.archive.spark import Differs, _comparable, _compare, _newest
from cordwood.bench.compaction.load import RECORDS_PER_BATCH, CommitFrame, keyed_batches
from cordwood.storage.records import decode

ENDS = {0: 10}


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


def row(offset: int, key: bytes, value: bytes | None = b"value") -> tuple[int, int, bytes, bytes | None, int]:
    return 0, offset, key, value, 1000 + offset


READ = [row(3, b"a"), row(5, b"b"), row(6, b"a", None), row(8, b"a"), row(9, b"c", None)]


def test_a_record_that_was_replaced_after_spark_has_read_it_may_be_gone() -> None:
    _compare("keyed", *_comparable(READ, [row(5, b"b"), row(8, b"a"), row(12, b"b")], ENDS))
    _compare("keyed", *_comparable(READ, [row(5, b"b"), row(12, b"a")], ENDS))
    _compare("keyed", *_comparable(READ, [row(11, b"b", None), row(12, b"a")], ENDS))


@pytest.mark.parametrize(
    "consumed",
    [
        [row(5, b"b"), row(12, b"b")],
        [row(5, b"b"), row(8, b"a", b"another")],
        [row(5, b"b"), row(7, b"d"), row(8, b"a")],
        [row(5, b"b"), row(8, b"a"), row(9, b"d"), row(12, b"d")],
    ],
    ids=["gone without a later one", "another value", "not read", "not read, and replaced"],
)
def test_any_other_difference_of_a_compacted_topic_is_named(
    consumed: list[tuple[int, int, bytes, bytes | None, int]],
) -> None:
    with pytest.raises(Differs):
        _compare("keyed", *_comparable(READ, consumed, ENDS))
