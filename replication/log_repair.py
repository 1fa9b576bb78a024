"""Repair of a replica's files: rewrite from memory or segments, quarantine, truncation to the sound part of a log."""

from collections.abc import Callable, Sequence

from cordwood.replication.archived_state import restore_archived_state
from cordwood.replication.checkpoints import Checkpoints
from cordwood.replication.log_directory import MARKS_FILE
from cordwood.replication.partition import Partition
from cordwood.replication.truncation import Truncation, full_truncation, truncation_to
from cordwood.storage import quarantine, scrub
from cordwood.storage.aborted_index import SUFFIX
from cordwood.storage.boundaries import offset_at
from cordwood.storage.errors import DamagedLog, ForeignSegment, LostTail, OutOfResources
from cordwood.storage.log import Log
from cordwood.storage.rewrite import write_index_again
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import segment_file
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE
from cordwood.storage.transaction_log import aborted_again

QUARANTINE_FOLDER = "quarantine"
"""Folder of a log directory with copies of damaged segments."""


def has_lost_records(damage: DamagedLog) -> bool:
    """Return whether records are damaged, and not a file that can be rebuilt from records or from memory."""
    name = damage.path.rpartition("/")[2]
    return not (name.endswith((".index", SUFFIX)) or name in (RECOVERY_FILE, EPOCHS_FILE, MARKS_FILE))


def is_still_damaged(partition: Partition, damage: DamagedLog) -> bool:
    """Return whether a second look finds the damage too. Blocks on the disk, but not for long."""
    log, marks = partition.log, partition.directory.flushed_offsets
    if log.lacks_archived_producers and damage.path == f"{log.directory}/{RECOVERY_FILE}":
        return True
    if damage.path == marks.file.path:
        return marks.damage_of(partition.topic_id, partition.index) is not None
    try:
        is_damaged = scrub.is_still_damaged(partition.log, damage)
    except OutOfResources:
        # The next read of the damage reports it again.
        return False
    segment = scrub.segment_with(partition.log, damage.path)
    if segment is not None and not is_damaged:
        segment.damaged.forget(damage.position)
    return is_damaged


def is_deleted(log: Log, damage: DamagedLog) -> bool:
    """Return whether retention or DeleteRecords has deleted the records of a damaged segment, or of a lost end.

    A log that lost all its segments begins at its end because of the loss: nothing is deleted. Nor are the files beside
    the segments.
    """
    if damage.path == log.directory or isinstance(damage, ForeignSegment):
        return False
    if isinstance(damage, LostTail):
        segment = log.segment_of(damage.offset) if log.segments else None
        is_gone = segment is None or segment.base_offset > damage.offset or segment.end_offset <= log.log_start
        return is_gone and damage.offset < log.log_start
    file, holder = segment_file(damage.path), scrub.segment_with(log, damage.path)
    return file is not None and (holder is None or holder.end_offset <= log.log_start)


async def rewrite(partition: Partition, path: str, checkpoints: Checkpoints) -> None:
    """Rewrite a file beside the segments: an index, a checkpoint, or the log's entry in the flushed-offsets file.

    Raises OutOfResources, DamagedLog, DiskFailed; ArchiveUnavailable if the archive has what is lost.
    """
    segment = scrub.segment_with(partition.log, path)
    if segment is None and path != partition.directory.flushed_offsets.file.path:
        await restore_archived_state(partition)
        partition.log.epochs.must_be_rewritten()
        await checkpoints.write(partition)
        return
    if segment is not None and path == segment.aborted.path:
        await _rebuild_aborted(partition, segment)
        await checkpoints.write(partition)
        return
    try:
        if segment is None:
            partition.note_flushed()
        elif segment.is_sealed:
            await partition.directory.run_blocking(write_index_again, segment)
            segment.release()
        else:
            write_index_again(segment)
    except OSError as error:
        raise partition.directory.write_failed(error) from error


async def _rebuild_aborted(partition: Partition, segment: Segment) -> None:
    """Find the aborted transactions of a segment again, unless they are in memory. Raises as `rewrite`."""
    log, truncations = partition.log, segment.truncations
    if segment.aborted.is_in_memory:
        segment.aborted.must_be_rewritten()
        return
    end = segment.end_offset
    rows = await partition.directory.run_blocking(list, aborted_again(log.segments, segment, end))
    if segment in log.segments and segment.truncations == truncations:
        segment.aborted.replace_below(end, rows)
        log.transactions_read_again(segment)
        partition.report_lacking_producers()


async def quarantine_segment(partition: Partition, damage: DamagedLog) -> str | None:
    """Copy a damaged segment to the quarantine. Return the copy's path; None if there is no file, or no room.

    There is none if the whole log is missing. Raises OSError.
    """
    if damage.path == partition.log.directory:
        return None
    segment, directory = scrub.segment_with(partition.log, damage.path), partition.directory
    paths = (damage.path,) if segment is None else segment.paths()
    if not any(map(directory.disk.exists, paths)):
        return None
    file = segment_file(damage.path)
    name = f"{partition.topic_id}-{partition.index}-{0 if file is None else file.base_offset}"
    place: str | None = await directory.run_blocking(
        quarantine.keep, directory.disk, f"{directory.path}/{QUARANTINE_FOLDER}", name, paths
    )
    return place


async def remove_foreign_segment(partition: Partition, damage: DamagedLog) -> None:
    """Remove a segment file that does not belong to the log. Raises OSError."""
    disk, run_blocking = partition.directory.disk, partition.directory.run_blocking
    if await run_blocking(scrub.is_still_damaged, partition.log, damage):
        await run_blocking(disk.remove, damage.path)


def truncation_at_damage(
    partition: Partition, damage: Sequence[DamagedLog], is_wanted: Callable[[], bool]
) -> Truncation | None:
    """Return the truncation at the first damage; None if the log ends before it.

    Raises OSError, StorageError.
    """
    log = partition.log
    if any(damaged.path == log.directory for damaged in damage):
        # The leader sends the log start offset later.
        return full_truncation(partition, 0, is_wanted)
    end = _first_damaged_offset(log, damage)
    if end >= log.log_end:
        return None
    if end <= log.local_start:
        return full_truncation(partition, log.log_start, is_wanted)
    return truncation_to(partition, end, is_wanted)


def _first_damaged_offset(log: Log, damage: Sequence[DamagedLog]) -> int:
    """Return the offset where the damage begins; the log end offset if there is none any more."""
    return min((_first_lost(log, damaged) for damaged in damage), default=log.log_end)


def _first_lost(log: Log, damage: DamagedLog) -> int:
    if isinstance(damage, LostTail):
        return damage.offset
    segment = scrub.segment_with(log, damage.path)
    return log.log_end if segment is None else offset_at(segment, damage.position)
