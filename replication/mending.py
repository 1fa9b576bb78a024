"""Repair of a replica's files from memory or from its segments, and truncation of a log to what is sound."""

from collections.abc import Sequence

from cordwood.replication.following import give_up, start_over
from cordwood.replication.housekeeping import Housekeeping, RunBlocking
from cordwood.replication.log_directory import MARKS_FILE
from cordwood.replication.partition import Partition
from cordwood.storage import quarantine, scrub
from cordwood.storage.boundaries import offset_at
from cordwood.storage.errors import DamagedLog, LostTail, OutOfResources
from cordwood.storage.log import Log
from cordwood.storage.rewriting import write_index_again
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE

QUARANTINE = "quarantine"
"""Where a log directory keeps copies of damaged segments."""


def has_lost_records(damage: DamagedLog) -> bool:
    """Whether records are damaged, and not what can be worked out again from them or from memory."""
    name = damage.path.rpartition("/")[2]
    return not (name.endswith(".index") or name in (RECOVERY_FILE, EPOCHS_FILE, MARKS_FILE))


def is_still_damaged(partition: Partition, damage: DamagedLog) -> bool:
    """Whether what was found, perhaps a while ago, is there when looked at once more. Waits for the disk, not long."""
    marks = partition.directory.marks
    if damage.path == marks.file.path:
        return (partition.topic_id, partition.index) in marks.unsound()
    try:
        is_damaged = scrub.is_still_damaged(partition.log, damage)
    except OutOfResources:
        # Whoever meets it next says so again.
        return False
    segment = scrub.segment_with(partition.log, damage.path)
    if segment is not None and not is_damaged:
        segment.damaged.forget(damage.position)
    return is_damaged


async def rewrite(partition: Partition, path: str, housekeeping: Housekeeping, run_blocking: RunBlocking) -> None:
    """Write one of the files beside the segments anew: an index, a checkpoint, or in a file of all the flush mark.

    Raises OutOfResources, DamagedLog, DiskFailed.
    """
    segment = scrub.segment_with(partition.log, path)
    if segment is None and path != partition.directory.marks.file.path:
        partition.log.epochs.changes_lost()
        await housekeeping.save(partition)
        return
    try:
        if segment is None:
            partition.note_flushed()
        elif segment.is_sealed:
            await run_blocking(write_index_again, segment)
            segment.release()
        else:
            write_index_again(segment)
    except OSError as error:
        raise partition.directory.write_failed(error) from error


async def set_aside(partition: Partition, damage: DamagedLog, run_blocking: RunBlocking) -> str | None:
    """Keep a copy of a damaged segment and say where; None where it has no file, or no room. Raises OSError."""
    segment, directory = scrub.segment_with(partition.log, damage.path), partition.directory
    paths = (damage.path,) if segment is None else segment.paths()
    if not any(map(directory.disk.exists, paths)):
        return None
    base = int(damage.path.rpartition("/")[2].partition(".")[0])
    name = f"{partition.topic_id}-{partition.index}-{base}"
    place: str | None = await run_blocking(
        quarantine.keep, directory.disk, f"{directory.path}/{QUARANTINE}", name, paths
    )
    return place


async def remove_foreign(partition: Partition, damage: DamagedLog, run_blocking: RunBlocking) -> None:
    """Remove a segment file that does not belong to the log. Raises OSError."""
    disk = partition.directory.disk
    if await run_blocking(scrub.is_still_damaged, partition.log, damage):
        await run_blocking(disk.remove, damage.path)


def give_up_damaged(partition: Partition, damage: Sequence[DamagedLog]) -> None:
    """Cut the log where the damage begins. Waits for the disk. Raises OutOfResources, DiskFailed."""
    log = partition.log
    if any(damaged.path == log.directory for damaged in damage):
        # Where the log begins, the leader will say.
        start_over(partition, 0)
        return
    end = _sound_end(log, damage)
    if end >= log.log_end:
        return
    if end <= log.log_start:
        start_over(partition, log.log_start)
        return
    give_up(partition, end, log.truncate)


def _sound_end(log: Log, damage: Sequence[DamagedLog]) -> int:
    """Where the damage begins; the log's end where it is gone by now."""
    return min((_first_lost(log, damaged) for damaged in damage), default=log.log_end)


def _first_lost(log: Log, damage: DamagedLog) -> int:
    if isinstance(damage, LostTail):
        return damage.offset
    segment = scrub.segment_with(log, damage.path)
    return log.log_end if segment is None else offset_at(segment, damage.position)
