"""Which log is compacted, and how much of it: Kafka's rules, without a log."""

from dataclasses import dataclass

import pytest

from cordwood.replication.dirtiness import Dirtiness, dirtiest, dirtiness_of, must_be_sealed
from cordwood.storage.config import LogConfig

NOW = 1_000_000
FOREVER = 1 << 62
COMPACTED = LogConfig(compacted=True, deletable=False)


@dataclass
class SegmentStub:
    base_offset: int
    end_offset: int
    size: int = 100
    first_timestamp: int = -1
    max_timestamp: int = -1


def segments(*ends: int) -> list[SegmentStub]:
    """Return segments with these ends, the last of them active."""
    return [SegmentStub(base, end) for base, end in zip((0, *ends), ends, strict=False)]


def dirt_of(
    log: list[SegmentStub], config: LogConfig = COMPACTED, clean_end: int = 0, stable_end: int = FOREVER
) -> Dirtiness:
    return dirtiness_of(log, config, clean_end, stable_end, NOW)


def test_an_empty_log_is_clean() -> None:
    assert dirt_of([]) == Dirtiness(0, 0, 0, 0, 0)
    assert not dirt_of([]).is_due(LogConfig(min_cleanable_dirty_ratio=0))


def test_the_active_segment_is_never_compacted() -> None:
    assert dirt_of(segments(10)) == Dirtiness(0, 0, 0, 0, 0)
    assert dirt_of(segments(10, 20)) == Dirtiness(0, 10, 0, 100, 0)


@pytest.mark.parametrize(("stable_end", "end"), [(30, 30), (29, 20), (20, 20), (9, 0)])
def test_a_segment_with_an_undecided_record_is_not_compacted(stable_end: int, end: int) -> None:
    assert dirt_of(segments(10, 20, 30, 40), stable_end=stable_end).end == end


def test_what_is_clean_does_not_count_as_dirty() -> None:
    dirt = dirt_of(segments(10, 20, 30, 40), clean_end=20)
    assert (dirt.start, dirt.end, dirt.clean_bytes, dirt.dirty_bytes) == (20, 30, 200, 100)
    assert dirt.ratio == pytest.approx(1 / 3)


def test_a_clean_end_within_a_segment_leaves_that_segment_dirty() -> None:
    dirt = dirt_of(segments(10, 20, 30), clean_end=15)
    assert (dirt.start, dirt.clean_bytes, dirt.dirty_bytes) == (15, 100, 100)


def test_a_log_whose_clean_part_was_deleted_is_dirty_from_its_start_on() -> None:
    log = segments(10, 20, 30)[1:]
    assert dirt_of(log, clean_end=5) == Dirtiness(10, 20, 0, 100, 0)


def test_segments_from_a_young_record_on_wait() -> None:
    log = segments(10, 20, 30, 40)
    for segment, age in zip(log, (500, 99, 500, 0), strict=True):
        segment.max_timestamp = NOW - age
    assert dirt_of(log, LogConfig(min_compaction_lag_ms=100)).end == 10
    assert dirt_of(log, LogConfig(min_compaction_lag_ms=99)).end == 30
    assert dirt_of(log, LogConfig(min_compaction_lag_ms=0)).end == 30


@pytest.mark.parametrize(("lag_ms", "overdue_ms"), [(100, 400), (500, 0), (499, 1)])
def test_a_dirty_record_above_the_maximum_lag_makes_the_log_due(lag_ms: int, overdue_ms: int) -> None:
    log = segments(10, 20, 30)
    log[0].first_timestamp, log[1].first_timestamp = 1, NOW - 500
    config = LogConfig(max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1)
    dirt = dirt_of(log, config, clean_end=10)
    assert dirt.overdue_ms == overdue_ms, "what is clean has no age"
    assert dirt.is_due(config) == (overdue_ms > 0)


@pytest.mark.parametrize(("ratio", "is_due"), [(0.0, True), (0.33, True), (0.34, False), (1.0, False)])
def test_a_log_is_due_above_its_ratio(ratio: float, is_due: bool) -> None:
    assert dirt_of(segments(10, 20, 30, 40), clean_end=20).is_due(LogConfig(min_cleanable_dirty_ratio=ratio)) == is_due


def test_the_dirtiest_of_those_that_are_due_comes_first() -> None:
    lazy, eager = LogConfig(min_cleanable_dirty_ratio=0.95), LogConfig(min_cleanable_dirty_ratio=0.1)
    half, most, little = Dirtiness(0, 1, 50, 50, 0), Dirtiness(0, 1, 10, 90, 0), Dirtiness(0, 1, 90, 10, 0)
    assert dirtiest([]) is None
    assert dirtiest([(most, lazy), (little, eager)]) is None
    assert dirtiest([(most, lazy), (little, eager), (half, eager)]) == 2
    assert dirtiest([(most, eager), (half, eager)]) == 0


def test_an_active_segment_is_sealed_by_age_or_size() -> None:
    active = SegmentStub(0, 10, 100, NOW - 500)
    aged = LogConfig(max_compaction_lag_ms=499)
    assert must_be_sealed(active, aged, None, NOW)
    assert not must_be_sealed(active, LogConfig(max_compaction_lag_ms=500), None, NOW)
    assert must_be_sealed(active, COMPACTED, 100, NOW)
    assert not must_be_sealed(active, COMPACTED, 101, NOW)
    assert not must_be_sealed(SegmentStub(10, 10, 0, NOW - 500), aged, 0, NOW), "there is nothing to compact"
    assert not must_be_sealed(SegmentStub(0, 10, 100, -1), aged, None, NOW), "records without a time have no age"
