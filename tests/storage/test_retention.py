"""Retention: which segments to delete by age, by size, or below the log start offset."""

from dataclasses import dataclass, replace

from cordwood.storage.config import LogConfig
from cordwood.storage.retention import droppable

NOW = 1_000_000
KEEP_ALL = LogConfig(retention_ms=-1, retention_bytes=-1)


@dataclass(slots=True)
class Segment:
    size: int
    end_offset: int
    max_timestamp: int = NOW


HUNDREDS = [Segment(100, 10), Segment(100, 20), Segment(100, 30)]


def dropped(
    segments: list[Segment], config: LogConfig, *, log_start: int = 0, high_watermark: int = 1 << 60, now: int = NOW
) -> int:
    return droppable(segments, config, log_start, high_watermark, now)


def test_nothing_goes_without_a_limit() -> None:
    assert dropped(HUNDREDS, KEEP_ALL, now=1 << 60) == 0
    assert dropped([], KEEP_ALL) == 0


def test_what_is_too_old_goes() -> None:
    segments = [Segment(100, 10, 1000), Segment(100, 20, 2000), Segment(100, 30, 3000)]
    by_age = replace(KEEP_ALL, retention_ms=500)
    assert [dropped(segments, by_age, now=now) for now in (1500, 1501, 2501)] == [0, 1, 2]


def test_the_active_segment_goes_for_age_too() -> None:
    assert dropped(HUNDREDS, replace(KEEP_ALL, retention_ms=500), now=NOW + 501) == 3


def test_an_empty_active_segment_stays() -> None:
    assert dropped([Segment(0, 10, -1)], replace(KEEP_ALL, retention_ms=0), now=NOW) == 0


def test_a_young_segment_protects_later_ones() -> None:
    segments = [Segment(100, 10, NOW), Segment(100, 20, 0), Segment(100, 30, NOW)]
    assert dropped(segments, replace(KEEP_ALL, retention_ms=500)) == 0


def test_the_log_keeps_at_least_as_many_bytes_as_it_may_have() -> None:
    limits = (0, 100, 199, 200, 299, 300)
    assert [dropped(HUNDREDS, replace(KEEP_ALL, retention_bytes=limit)) for limit in limits] == [2, 2, 1, 1, 0, 0]


def test_what_lies_below_the_logs_start_goes_even_if_nothing_may_be_deleted() -> None:
    config = replace(KEEP_ALL, deletable=False, retention_ms=0, retention_bytes=0)
    assert [dropped(HUNDREDS, config, log_start=start) for start in (9, 10, 19, 20, 30)] == [0, 1, 1, 2, 2]


def test_nothing_uncommitted_goes() -> None:
    config = replace(KEEP_ALL, retention_ms=0, retention_bytes=0)
    assert [dropped(HUNDREDS, config, now=NOW + 9, high_watermark=end) for end in (9, 10, 29, 30)] == [0, 1, 2, 3]


def test_a_follower_keeps_what_it_does_not_know_to_be_committed_though_it_is_archived_or_deleted() -> None:
    archived = replace(KEEP_ALL, is_archived=True, local_retention_bytes=0)
    assert [droppable(HUNDREDS, archived, 0, end, NOW, 20) for end in (9, 10, 20)] == [0, 1, 2]
    assert [dropped(HUNDREDS, KEEP_ALL, log_start=20, high_watermark=end) for end in (9, 10, 20)] == [0, 1, 2]


def test_what_may_not_be_deleted_does_not_age() -> None:
    assert dropped(HUNDREDS, replace(KEEP_ALL, deletable=False, retention_ms=500), now=NOW + 501) == 0


def test_local_retention_is_the_topics_unless_it_has_its_own() -> None:
    archived = replace(KEEP_ALL, is_archived=True, retention_bytes=200, local_retention_bytes=-2, local_retention_ms=-2)
    assert droppable(HUNDREDS, archived, 0, 30, NOW, 30) == 1
    assert droppable(HUNDREDS, replace(archived, local_retention_bytes=100), 0, 30, NOW, 30) == 2
    aged = replace(archived, retention_bytes=-1, retention_ms=500)
    assert droppable(HUNDREDS, aged, 0, 30, NOW + 501, 20) == 2
    assert droppable(HUNDREDS, replace(aged, local_retention_ms=-1), 0, 30, NOW + 501, 20) == 0


def test_records_without_a_time_are_not_taken_for_old_ones() -> None:
    untimed = [Segment(100, 10, -1), Segment(100, 20, -1)]
    assert dropped(untimed, replace(KEEP_ALL, retention_ms=500)) == 0
