"""Retention of archive and disk together: by age and size, and never twice for the same bytes."""

from uuid import UUID

import pytest

from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.cluster.tiering.retention import LocalSegment, retained_from
from cordwood.storage.config import LogConfig

NOW_MS = 1_000_000


def archive(*segments: tuple[int, int, int], overlapping: int | None = None) -> PartitionArchive:
    """Return an archive of segments with start offset, end offset and size; the one to `overlapping` begins earlier."""
    return PartitionArchive(
        tuple(
            ArchivedSegment(
                UUID(int=end),
                start - (5 if end == overlapping else 0),
                start,
                end,
                size,
                0,
                1,
                0,
                NOW_MS - 1000 + end,
                1,
            )
            for start, end, size in segments
        )
    )


def local(*segments: tuple[int, int, int]) -> tuple[LocalSegment, ...]:
    """Return a log of segments with base offset, end offset and size, the last of which is active."""
    return tuple(
        LocalSegment(base, end, size, NOW_MS - 1000 + end, is_sealed=place < len(segments) - 1)
        for place, (base, end, size) in enumerate(segments)
    )


def config(*, size: int = -1, age_ms: int = -1, is_archived: bool = True, is_deletable: bool = True) -> LogConfig:
    return LogConfig(retention_bytes=size, retention_ms=age_ms, is_archived=is_archived, deletable=is_deletable)


ARCHIVE = archive((0, 10, 100), (10, 20, 100), (20, 30, 100))
LOG = local((20, 30, 100), (30, 40, 100), (40, 45, 50))


@pytest.mark.parametrize(("size", "start"), [(450, 0), (449, 0), (351, 0), (350, 10), (250, 20), (151, 20), (0, 40)])
def test_bytes_on_disk_and_in_the_archive_count_once(size: int, start: int) -> None:
    # 450 bytes in all: those from 20 to 30 are in both.
    assert retained_from(ARCHIVE, LOG, config(size=size), 45, NOW_MS) == start


@pytest.mark.parametrize(("age_ms", "start"), [(1000, 0), (990, 0), (989, 10), (975, 20), (960, 30), (900, 40)])
def test_age_is_that_of_the_newest_record_of_a_segment(age_ms: int, start: int) -> None:
    assert retained_from(ARCHIVE, LOG, config(age_ms=age_ms), 45, NOW_MS) == start


def test_nothing_is_deleted_that_is_not_committed_or_that_a_cut_needs() -> None:
    limits = config(size=0)
    assert retained_from(ARCHIVE, LOG, limits, 39, NOW_MS) == 30
    assert retained_from(ARCHIVE, LOG, limits, 45, NOW_MS, pinned_from=20) == 20
    assert retained_from(ARCHIVE, LOG, limits, 45, NOW_MS, pinned_from=19) == 10


def test_a_topic_that_is_only_compacted_or_without_limits_keeps_everything() -> None:
    assert retained_from(ARCHIVE, LOG, config(size=0, age_ms=0, is_deletable=False), 45, NOW_MS) == 0
    assert retained_from(ARCHIVE, LOG, config(), 45, NOW_MS) == 0


def test_records_without_timestamps_have_no_age() -> None:
    timeless = PartitionArchive((ArchivedSegment(UUID(int=1), 0, 0, 10, 100, 0, 1, 0, -1, 1),))
    assert retained_from(timeless, (), config(age_ms=0), 45, NOW_MS) == 0


def test_segments_that_overlap_are_not_deleted_too_early() -> None:
    # A leader after another had segments from 5 to 20, and from 25 to 40: their first bytes are counted already.
    overlapping = archive((0, 10, 100), (10, 20, 100), (20, 30, 100), overlapping=20)
    log = local((25, 40, 100), (40, 45, 50))
    assert retained_from(overlapping, log, config(size=151), 45, NOW_MS) == 0
    assert retained_from(overlapping, log, config(size=150), 45, NOW_MS) == 20


def test_the_log_itself_is_retained_by_the_log_if_the_topic_is_archived_no_more() -> None:
    assert retained_from(ARCHIVE, LOG, config(size=0, is_archived=False), 45, NOW_MS) == 30
