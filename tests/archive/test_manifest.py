"""Manifest of a partition's archive: what fits it, what is refused, and what becomes of uploads that are given up."""

from uuid import UUID

import pytest

from cordwood.archive.manifest import (
    NO_LIMIT,
    ArchivedSegment,
    ManifestConflict,
    PartitionArchive,
    RemovedSegment,
    Upload,
    forgotten,
    with_committed,
    with_replaced,
    with_upload,
    without,
)

NOW_MS = 5000


def segment(number: int, start: int, end: int, base: int | None = None) -> ArchivedSegment:
    return ArchivedSegment(UUID(int=number), start if base is None else base, start, end, 100, 0, 10, 0, 1, 1)


def upload(number: int, base: int = 0, end: int = 10) -> Upload:
    return Upload(UUID(int=number), base, end, 1000)


def archive(*segments: ArchivedSegment, announced: tuple[int, ...] = ()) -> PartitionArchive:
    return PartitionArchive(segments, tuple(map(upload, announced)), sequence=7)


def test_an_upload_is_committed_at_the_end_of_what_is_archived() -> None:
    known = archive(segment(1, 0, 10), announced=(2, 3))
    committed = with_committed(known, [segment(2, 10, 20)])
    assert [one.end_offset for one in committed.segments] == [10, 20]
    assert [one.id for one in committed.uploads] == [UUID(int=3)]
    assert committed.sequence == 8
    assert (committed.start, committed.end, committed.size) == (0, 20, 200)


@pytest.mark.parametrize(
    "new",
    [
        [segment(2, 11, 20)],
        [segment(2, 9, 20)],
        [segment(9, 10, 20)],
        [],
        [segment(2, 10, 10)],
        [segment(2, 10, 20, base=11)],
        [segment(2, 10, 20), segment(3, 21, 30)],
    ],
    ids=["gap", "overlap", "not announced", "nothing", "empty", "before its base", "gap between"],
)
def test_what_does_not_fit_is_refused(new: list[ArchivedSegment]) -> None:
    with pytest.raises(ManifestConflict):
        with_committed(archive(segment(1, 0, 10), announced=(2, 3)), new)


def test_an_id_is_announced_once() -> None:
    known = with_upload(archive(segment(1, 0, 10)), upload(2))
    for number in (1, 2):
        with pytest.raises(ManifestConflict, match="in use"):
            with_upload(known, upload(number))


def test_a_run_of_segments_is_replaced_by_one_of_the_same_offsets() -> None:
    known = archive(segment(1, 0, 10), segment(2, 10, 20), segment(3, 20, 30), announced=(4,))
    replaced = with_replaced(known, [UUID(int=1), UUID(int=2)], [segment(4, 0, 20)], NOW_MS)
    assert [one.id for one in replaced.segments] == [UUID(int=4), UUID(int=3)]
    assert [one.removed_ms for one in replaced.removed] == [NOW_MS, NOW_MS]
    for old, new in [
        ([1, 3], (0, 20)),
        ([1], (0, 20)),
        ([1, 2], (0, 19)),
        ([], (0, 20)),
        ([9], (0, 10)),
        ([1, 3, 2], (0, 30)),
    ]:
        with pytest.raises(ManifestConflict):
            with_replaced(known, [UUID(int=one) for one in old], [segment(4, *new)], NOW_MS)


def test_segments_below_and_above_are_removed_whole() -> None:
    known = archive(segment(1, 0, 10), segment(2, 10, 20), segment(3, 20, 30))
    assert [one.end_offset for one in without(known, 10, NO_LIMIT, NOW_MS).segments] == [20, 30]
    assert [one.end_offset for one in without(known, 0, 20, NOW_MS).segments] == [10, 20]
    assert [one.end_offset for one in without(known, 0, 29, NOW_MS).segments] == [10, 20]
    assert without(known, 0, NO_LIMIT, NOW_MS) is known
    removed = [one.id for one in without(known, 10, 20, NOW_MS).removed]
    assert removed == [UUID(int=1), UUID(int=3)], "their objects are to be deleted"


def test_records_that_were_deleted_within_the_first_segment_are_known() -> None:
    known = archive(segment(1, 0, 10), segment(2, 10, 20))
    deleted = without(known, 9, NO_LIMIT, NOW_MS)
    assert (deleted.segments, deleted.start, deleted.log_start) == (known.segments, 9, 9)
    assert deleted.sequence == known.sequence + 1
    assert without(deleted, 9, NO_LIMIT, NOW_MS) is without(deleted, 3, NO_LIMIT, NOW_MS) is deleted
    assert without(deleted, 10, NO_LIMIT, NOW_MS).start == 10
    assert without(deleted, 0, 10, NOW_MS).start == 9
    replaced = with_replaced(with_upload(deleted, upload(3)), [UUID(int=1)], [segment(3, 0, 10)], NOW_MS)
    assert replaced.start == 9


def test_an_upload_is_given_up_before_it_is_forgotten() -> None:
    known = archive(segment(1, 0, 10), announced=(2,))
    ids = [UUID(int=1), UUID(int=2)]
    given_up = forgotten(known, ids)
    assert given_up.segments == known.segments
    assert given_up.uploads == ()
    assert given_up.removed == (RemovedSegment(UUID(int=2), 0, 10, 1000),)
    with pytest.raises(ManifestConflict):
        with_committed(given_up, [segment(2, 10, 20)])
    with pytest.raises(ManifestConflict):
        with_upload(given_up, upload(2))
    assert forgotten(given_up, ids).removed == ()
