"""Plan of a truncation: its offset, and the reads and writes before the log is changed."""

from typing import TYPE_CHECKING

from cordwood.storage.boundaries import batch_boundary
from cordwood.storage.producers import Producers
from cordwood.storage.segment import Segment
from cordwood.storage.state import LogState, state_after_truncation
from cordwood.storage.transaction_log import must_read_again, producers_again

if TYPE_CHECKING:
    from cordwood.storage.log import Log


def truncation_point(log: "Log", end: int) -> tuple[Segment, int, int]:
    """Return segment and position where a truncation to `end` begins, and the log end offset after it.

    Blocks on the disk. Raises DamagedLog.
    """
    assert end >= log.local_start, "rule 4: a truncation ends at a common epoch, never below the log's start"
    segment, position = log.segment_of(end), 0
    if end > segment.base_offset and not segment.is_lost:
        end, position = batch_boundary(segment, end)
    return segment, position, end


def flushed_end_before_truncation(log: "Log", end: int) -> int:
    """Return the flushed end to note before a truncation to `end`: in a gap, the log will end before `end`."""
    if not log.segments or not (segment := log.segment_of(end)).generation:
        return min(end, log.flushed_end)
    return min(segment.base_offset, end, log.flushed_end)


def producers_before_truncation(log: "Log", end: int) -> Producers | None:
    """Return the producers that a truncation to `end` reads from the batches, if any. Blocks on the disk."""
    segment, _, end = truncation_point(log, end)
    return producers_again(log, segment, end)


def state_before_truncation(log: "Log", end: int, again: Producers | None = None) -> LogState | None:
    """Return the checkpoint to write (`lower_checkpoint`) before a truncation to `end`; None if none is needed.

    `again` is what `producers_before_truncation` has returned. Raises as `Log.truncate`.
    """
    if end >= log.log_end:
        return None
    segment, _, end = truncation_point(log, end)
    if end >= log.recovery_point:
        return None
    return state_after_truncation(log, end, producers_again(log, segment, end, again))


def state_before_full_truncation(log: "Log") -> LogState | None:
    """Return the checkpoint to write (`lower_checkpoint`) before the whole log is removed; None if it has no segment.

    A crash before the removal leaves the log, to be read from its first segment on; a later one leaves an empty log.
    """
    if not log.segments:
        return None
    end = log.segments[0].base_offset
    # No batch may be read: damage may be the reason for the removal.
    again = Producers() if must_read_again(log.producers, end) else None
    return state_after_truncation(log, end, again)._replace(log_start=log.log_start)
