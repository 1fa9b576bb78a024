"""Verification of compacted logs: below the clean end each key has one record."""

import pytest
from compacted_log import compact, odd
from log_fixture import DIRECTORY, LogFixture

from cordwood.storage.batch import BatchHeader
from cordwood.storage.compaction.verify import verify_compacted

KEYS = 7


def keyed() -> LogFixture:
    """Return a log of 60 records; the record at each offset has one of KEYS keys."""
    log = LogFixture()
    for offset in range(60):
        log.append(f"{offset:02}", key=f"key-{offset % KEYS}")
    return log.flush().checkpoint()


def only_the_last(end: int) -> dict[int, int]:
    """Return the last offset below `end` of each key."""
    return {offset % KEYS: offset for offset in range(end)}


def compacted(clean_end_at: int) -> LogFixture:
    """Return the log with its first segments compacted. The clean end is the base offset of a segment."""
    log = keyed()
    end = log.bases[clean_end_at]
    last = only_the_last(end)

    def keeps(header: BatchHeader) -> bool:
        return last[header.base_offset % KEYS] == header.base_offset

    for _ in range(clean_end_at):
        if log.log.segments[0].end_offset < end or not log.log.segments[0].generation:
            compact(log, 0, 2 if log.log.segments[0].generation else 1, keeps)
    log.log.clean_end = end
    return log.checkpoint()


@pytest.mark.parametrize("keys_max", [1, 3, 1 << 20])
def test_nothing_is_found_where_each_key_has_one_record(keys_max: int) -> None:
    assert list(verify_compacted(compacted(3).disk, DIRECTORY, keys_max)) == []


@pytest.mark.parametrize("keys_max", [1, 3, 1 << 20])
def test_an_earlier_record_of_a_key_is_found(keys_max: int) -> None:
    log = keyed()
    end = log.bases[2]
    compact(log, 0, 2, odd)
    log.log.clean_end = end
    log.checkpoint()
    found = list(verify_compacted(log.disk, DIRECTORY, keys_max))
    offsets = range(1, end, 2)
    repeated = [offset for offset in offsets if any(other % KEYS == offset % KEYS for other in range(1, offset, 2))]
    assert {int(damage.what.split()[4]) for damage in found} == set(repeated)
    assert all(damage.path == log.log.segments[0].path for damage in found)


def test_records_without_a_key_are_found() -> None:
    log = LogFixture().append(*(f"{number:02}" for number in range(30))).flush().checkpoint()
    log.log.clean_end = log.bases[1]
    log.checkpoint()
    assert len(list(verify_compacted(log.disk, DIRECTORY))) == log.bases[1]


def test_a_log_that_was_not_compacted_has_nothing_to_find() -> None:
    assert list(verify_compacted(keyed().disk, DIRECTORY)) == []
