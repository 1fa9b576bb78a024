"""Lineage: archived segments count only as far as the leader's log has the same epochs."""

from uuid import UUID

from cordwood.archive.manifest import NO_LIMIT, ArchivedSegment
from cordwood.cluster.tiering.lineage import lineage_end
from cordwood.storage.epochs import EpochStart
from cordwood.storage.types import LeaderEpoch, Offset


def archived(start: int, end: int, epoch: int) -> ArchivedSegment:
    return ArchivedSegment(UUID(int=end), start, start, end, 100, 0, 10, 0, 1, epoch)


def epochs(**starts: int) -> tuple[EpochStart, ...]:
    """Return epochs by their start offsets: epochs(e1=0, e3=20)."""
    return tuple(EpochStart(LeaderEpoch(int(name[1:])), Offset(start)) for name, start in starts.items())


SEGMENTS = archived(0, 10, 1), archived(10, 20, 1), archived(20, 30, 3)


def test_the_same_epochs_are_the_same_records() -> None:
    assert lineage_end(SEGMENTS, epochs(e1=0, e3=20), 40) == NO_LIMIT
    assert lineage_end(SEGMENTS, epochs(e0=0, e1=5, e3=20, e4=30), 40) == NO_LIMIT


def test_a_later_epoch_that_began_within_a_segment_contradicts_it_before_the_log_is_as_long() -> None:
    # An operator has elected a replica whose log ended at 14, and it has one record more since.
    assert lineage_end(SEGMENTS, epochs(e1=0, e2=14), 15) == 10
    assert lineage_end(SEGMENTS, epochs(e1=0, e3=20, e4=29), 35) == 20


def test_an_earlier_epoch_at_the_same_offset_contradicts_a_segment() -> None:
    assert lineage_end(SEGMENTS, epochs(e1=0, e4=30), 35) == 20


def test_a_log_that_only_ends_before_the_archive_contradicts_nothing() -> None:
    assert lineage_end(SEGMENTS, (), 0) == NO_LIMIT
    assert lineage_end(SEGMENTS, epochs(e1=0), 14) == NO_LIMIT
    assert lineage_end(SEGMENTS, epochs(e1=0, e3=20), 22) == NO_LIMIT


def test_what_is_below_the_first_epoch_that_the_log_knows_is_not_contradicted() -> None:
    assert lineage_end(SEGMENTS, epochs(e3=20), 40) == NO_LIMIT
    assert lineage_end(SEGMENTS, epochs(e4=20), 40) == 20
