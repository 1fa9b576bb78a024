"""Lineage of archived segments: whether they hold the records that a log has at their offsets. Pure.

Archived records are committed, and so every later leader has them, unless an operator has elected a replica without
them. Such a replica leads once its log begins at the archive's end (`replication/archived_leaders.py`).
"""

from collections.abc import Sequence
from itertools import pairwise

from cordwood.archive.manifest import NO_LIMIT, ArchivedSegment, PartitionArchive
from cordwood.replication.archive_view import ArchivedRange
from cordwood.replication.partition import Partition
from cordwood.storage.epochs import EpochStart


def ahead_of(partition: Partition, archive: PartitionArchive | None) -> ArchivedRange | None:
    """Return the archived range if the log lacks records or epochs of it, or may have others there; otherwise None."""
    if archive is None or archive.start is None or archive.end is None:
        return None
    log = partition.log
    is_whole = log.log_end >= archive.end and not log.lacks_archived_epochs
    if is_whole and lineage_end(archive.segments, tuple(log.epochs), log.log_end) == NO_LIMIT:
        return None
    return ArchivedRange(archive.start, archive.end)


def lineage_end(segments: Sequence[ArchivedSegment], epochs: Sequence[EpochStart], log_end: int) -> int:
    """Return the offset above which archived segments are not of the log's lineage; NO_LIMIT if all are.

    A log that only ends before the archive, as one on an empty disk does, contradicts nothing.
    """
    for segment in segments:
        if _contradicts(segment, epochs, log_end):
            return segment.start_offset
    return NO_LIMIT


def _contradicts(segment: ArchivedSegment, epochs: Sequence[EpochStart], log_end: int) -> bool:
    """Return whether the log has another epoch than the segment at the segment's last offset, or a later one before."""
    if not epochs or segment.end_offset <= epochs[0].offset:
        return False
    if any(later.epoch > segment.leader_epoch and later.offset < segment.end_offset for later in epochs):
        return True
    if segment.end_offset > log_end:
        return False
    ends = [*(after.offset for _, after in pairwise(epochs)), log_end]
    last = segment.end_offset - 1
    return any(
        start.offset <= last < end and start.epoch != segment.leader_epoch
        for start, end in zip(epochs, ends, strict=True)
    )
