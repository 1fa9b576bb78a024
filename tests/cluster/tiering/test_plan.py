"""The next step of a partition's archive."""

from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.archive.manifest import ArchivedSegment, PartitionArchive, RemovedSegment, Upload
from cordwood.cluster.tiering.plan import (
    DELETIONS_AT_ONCE,
    UPLOAD_BYTES_AT_ONCE,
    UPLOADS_AT_ONCE,
    DeleteObjects,
    GiveUp,
    NewSegment,
    RaiseLogStart,
    RemoveBelow,
    Roll,
    Situation,
    UploadSegments,
    WriteCommit,
    is_foreign,
    may_go_on,
    metadata_step,
    store_step,
)
from cordwood.cluster.tiering.retention import LocalSegment
from cordwood.storage.config import LogConfig
from cordwood.storage.epochs import EpochStart
from cordwood.storage.pins import Pin
from cordwood.storage.types import LeaderEpoch, Offset

NOW_MS, GRACE_MS = 1_000_000, 1000
CONFIG = LogConfig(is_archived=True, retention_ms=-1, segment_ms=10_000)
COMPACTED = replace(CONFIG, compacted=True, deletable=False)


def log(*ends: int, size: int = 100, begin: int = 0) -> tuple[LocalSegment, ...]:
    """Return segments with these ends, the last of which is active."""
    bases = (begin, *ends[:-1])
    return tuple(
        LocalSegment(base, end, size, NOW_MS - 5000, is_sealed=end != ends[-1])
        for base, end in zip(bases, ends, strict=True)
    )


def archived(*ends: int, begin: int = 0, size: int = 100) -> tuple[ArchivedSegment, ...]:
    starts = (begin, *ends[:-1])
    return tuple(
        ArchivedSegment(UUID(int=end), start, start, end, size, 0, 10, 0, NOW_MS - 5000, 1)
        for start, end in zip(starts, ends, strict=True)
    )


def situation(
    segments: tuple[LocalSegment, ...],
    archive: PartitionArchive | None = None,
    *,
    log_start: int = 0,
    config: LogConfig = CONFIG,
    **changes: object,
) -> Situation:
    """Return a situation in which everything is committed and stable, and the last commit object is written."""
    archive = archive or PartitionArchive()
    end = segments[-1].end_offset if segments else 0
    usual = Situation(
        archive=archive,
        config=config,
        segments=segments,
        epochs=(EpochStart(LeaderEpoch(1), Offset(0)),),
        log_start=log_start,
        low_watermark=log_start,
        high_watermark=end,
        last_stable=end,
        log_end=end,
        clean_end=0,
        now_ms=NOW_MS,
        grace_ms=GRACE_MS,
        compacted_delay_ms=60_000,
        committed_sequence=archive.sequence,
        active_since_ms=NOW_MS,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def uploaded(found: Situation) -> list[tuple[int, int, int]]:
    """Return base, start and end of the segments that are uploaded next."""
    step = store_step(found)
    if step is None:
        return []
    assert isinstance(step, UploadSegments)
    return [(one.local.base_offset, one.start_offset, one.local.end_offset) for one in step.segments]


def test_sealed_segments_are_uploaded_in_order() -> None:
    assert uploaded(situation(log(10, 20, 30))) == [(0, 0, 10), (10, 10, 20)]
    known = PartitionArchive(archived(10), sequence=1)
    assert uploaded(situation(log(10, 20, 30), known)) == [(10, 10, 20)]
    assert uploaded(situation(log(10, 20, 30), PartitionArchive(archived(10, 20), sequence=1))) == []


def test_nothing_above_the_high_watermark_or_the_last_stable_offset_is_uploaded() -> None:
    assert uploaded(situation(log(10, 20, 30), high_watermark=19)) == [(0, 0, 10)]
    assert uploaded(situation(log(10, 20, 30), last_stable=19)) == [(0, 0, 10)]
    assert uploaded(situation(log(10, 20, 30), high_watermark=20, last_stable=20)) == [(0, 0, 10), (10, 10, 20)]


def test_a_leader_with_other_segments_uploads_the_one_with_the_next_offset_whole() -> None:
    known = PartitionArchive(archived(7), sequence=1)
    assert uploaded(situation(log(10, 20, 30), known)) == [(0, 7, 10), (10, 10, 20)]


def test_the_first_upload_begins_at_the_log_start() -> None:
    assert uploaded(situation(log(10, 20, 30), log_start=10)) == [(10, 10, 20)]
    assert uploaded(situation(log(10, 20, 30), log_start=14)) == [(10, 14, 20)]


def test_a_log_without_the_next_offset_uploads_nothing() -> None:
    known = PartitionArchive(archived(10), sequence=1)
    assert uploaded(situation(log(20, 30, begin=11), known)) == []


def test_a_bounded_number_of_segments_and_bytes_is_uploaded_at_once() -> None:
    many = log(*range(10, 200, 10))
    assert len(uploaded(situation(many))) == UPLOADS_AT_ONCE
    large = log(10, 20, 30, 40, size=UPLOAD_BYTES_AT_ONCE)
    assert uploaded(situation(large)) == [(0, 0, 10)]


def test_a_topic_that_is_not_archived_uploads_nothing() -> None:
    assert uploaded(situation(log(10, 20, 30), config=LogConfig())) == []


def test_the_commit_object_comes_before_other_uploads() -> None:
    known = PartitionArchive(archived(10), sequence=4)
    assert store_step(situation(log(10, 20, 30), known, committed_sequence=3)) == WriteCommit()
    assert store_step(situation(log(10, 20, 30), known, committed_sequence=-1)) == WriteCommit()
    emptied = PartitionArchive(sequence=5)
    assert store_step(situation(log(10), emptied, committed_sequence=4)) == WriteCommit()


def test_a_partition_without_an_archive_has_no_commit_object() -> None:
    assert store_step(situation(log(10), committed_sequence=-1)) is None


def test_a_segment_of_a_compacted_topic_waits_for_the_cleaner_for_some_time() -> None:
    segments = log(10, 20, 30)
    assert uploaded(situation(segments, config=COMPACTED)) == []
    assert uploaded(situation(segments, config=COMPACTED, clean_end=10)) == [(0, 0, 10)]
    assert uploaded(situation(segments, config=COMPACTED, compacted_delay_ms=5000)) == [(0, 0, 10), (10, 10, 20)]


def test_a_segment_of_a_compacted_topic_that_is_from_the_future_waits_for_nothing() -> None:
    (first, *rest) = log(10, 20)
    ahead = (first._replace(max_timestamp=NOW_MS + 60_000), *rest)
    assert uploaded(situation(ahead, config=COMPACTED)) == [(0, 0, 10)]


def test_compacted_segments_replace_archived_ones_between_common_ends() -> None:
    # The cleaner has made one segment up to 30 of three, and this leader's segments never ended at 20.
    segments = (LocalSegment(0, 30, 100, 1), LocalSegment(30, 40, 100, 1), LocalSegment(40, 45, 10, 1, is_sealed=False))
    known = PartitionArchive(archived(10, 20, 30, 40), sequence=1)
    step = store_step(situation(segments, known, config=COMPACTED, clean_end=40))
    assert step == UploadSegments((NewSegment(segments[0], 0),), known.segments[:3])


def test_archived_segments_of_about_the_same_size_are_not_replaced() -> None:
    segments = (LocalSegment(0, 20, 140, 1), LocalSegment(20, 25, 10, 1, is_sealed=False))
    known = PartitionArchive(archived(10, 20), sequence=1)
    assert store_step(situation(segments, known, config=COMPACTED, clean_end=20)) is None
    smaller = (LocalSegment(0, 20, 133, 1), segments[1])
    assert isinstance(store_step(situation(smaller, known, config=COMPACTED, clean_end=20)), UploadSegments)
    assert store_step(situation(smaller, known, config=COMPACTED, clean_end=19)) is None


def test_what_a_cut_pins_is_not_replaced() -> None:
    segments = (LocalSegment(0, 20, 10, 1), LocalSegment(20, 25, 10, 1, is_sealed=False))
    known = PartitionArchive(archived(10, 20), sequence=1)
    assert store_step(situation(segments, known, config=COMPACTED, clean_end=20, pinned=Pin(5, 15))) is None


def test_replacements_keep_the_first_archived_offset() -> None:
    segments = (LocalSegment(0, 20, 10, 1), LocalSegment(20, 25, 10, 1, is_sealed=False))
    known = PartitionArchive(archived(12, 20, begin=4), sequence=1)
    step = store_step(situation(segments, known, config=COMPACTED, clean_end=20, log_start=4))
    assert step == UploadSegments((NewSegment(segments[0], 4),), known.segments)


def test_an_archive_with_other_records_than_the_log_is_left_as_it_is() -> None:
    known = PartitionArchive(archived(10, 20), sequence=1)
    epochs = (EpochStart(LeaderEpoch(1), Offset(0)), EpochStart(LeaderEpoch(2), Offset(12)))
    assert is_foreign(situation(log(10, 20, 30), known, epochs=epochs))
    assert metadata_step(situation(log(10, 20, 30), known, epochs=epochs)) is None
    assert not is_foreign(situation(log(10, 20, 30), known, epochs=epochs[:1]))


def test_retention_raises_the_log_start_and_then_removes_below_what_all_replicas_have_deleted() -> None:
    known = PartitionArchive(archived(10, 20), sequence=1)
    limited = replace(CONFIG, retention_bytes=210)
    assert metadata_step(situation(log(10, 20, 30), known, config=limited)) is None
    limited = replace(CONFIG, retention_bytes=200)
    assert metadata_step(situation(log(10, 20, 30), known, config=limited)) == RaiseLogStart(10)
    raised = situation(log(10, 20, 30), known, config=limited, log_start=10, low_watermark=0)
    assert metadata_step(raised) is None
    assert metadata_step(replace(raised, low_watermark=10)) == RemoveBelow(10)


def test_retention_keeps_what_a_cut_needs() -> None:
    known = PartitionArchive(archived(10, 20), sequence=1)
    limited = replace(CONFIG, retention_bytes=0)
    assert metadata_step(situation(log(10, 20, 30), known, config=limited)) == RaiseLogStart(20)
    assert metadata_step(situation(log(10, 20, 30), known, config=limited, pinned=Pin(15, 20))) == RaiseLogStart(10)


def test_deleted_records_are_removed_segment_by_segment() -> None:
    known = PartitionArchive(archived(10, 20), sequence=1)
    assert metadata_step(situation(log(10, 20, 30), known, log_start=19)) == RemoveBelow(19)


def test_the_archive_knows_records_that_were_deleted_within_a_segment() -> None:
    known = PartitionArchive(archived(10, 20), sequence=1)
    assert metadata_step(situation(log(10, 20, 30), known, log_start=9)) == RemoveBelow(9)
    assert metadata_step(situation(log(10, 20, 30), replace(known, log_start=9), log_start=9)) is None


@pytest.mark.parametrize(("age_ms", "is_rolled"), [(10_000, False), (10_001, True)])
def test_an_idle_active_segment_is_rolled_at_its_age(age_ms: int, is_rolled: bool) -> None:
    step = metadata_step(situation(log(10, 20), active_since_ms=NOW_MS - age_ms))
    assert step == (Roll(10) if is_rolled else None)


def test_an_empty_active_segment_and_that_of_another_topic_is_not_rolled() -> None:
    assert metadata_step(situation(log(10, 20, size=0), active_since_ms=0)) is None
    assert metadata_step(situation(log(10, 20), config=LogConfig(retention_ms=-1), active_since_ms=0)) is None


def test_an_old_upload_is_given_up_unless_it_is_in_progress() -> None:
    uploads = (Upload(UUID(int=1), 0, 10, NOW_MS - GRACE_MS), Upload(UUID(int=2), 0, 10, NOW_MS - GRACE_MS + 1))
    known = PartitionArchive(uploads=uploads)
    assert metadata_step(situation(log(10), known)) == GiveUp((UUID(int=1),))
    assert metadata_step(situation(log(10), known, in_progress=frozenset([UUID(int=1)]))) is None


def test_an_upload_puts_nothing_in_the_second_half_of_its_grace_period() -> None:
    upload = Upload(UUID(int=1), 0, 10, NOW_MS)
    assert may_go_on(upload, NOW_MS + GRACE_MS // 2 - 1, GRACE_MS)
    assert not may_go_on(upload, NOW_MS + GRACE_MS // 2, GRACE_MS)


def test_objects_are_deleted_after_the_grace_period_and_the_commit() -> None:
    old, new = RemovedSegment(UUID(int=1), 0, 10, NOW_MS - GRACE_MS), RemovedSegment(UUID(int=2), 0, 10, NOW_MS)
    known = PartitionArchive(archived(20, begin=10), removed=(old, new), sequence=2)
    segments = log(30, begin=10)
    assert store_step(situation(segments, known)) == DeleteObjects((old,))
    assert store_step(situation(segments, known, committed_sequence=1)) == WriteCommit()
    assert store_step(situation(segments, replace(known, removed=(new,)))) is None


def test_a_bounded_number_of_objects_is_deleted_at_once() -> None:
    removed = tuple(RemovedSegment(UUID(int=number), 0, 10, 0) for number in range(DELETIONS_AT_ONCE + 1))
    step = store_step(situation(log(10), PartitionArchive(removed=removed)))
    assert step == DeleteObjects(removed[:-1])
