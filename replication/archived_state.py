"""State of records that only the archive has: their leader epochs and producers, taken from there (archive rule 4).

A replica that has lost one of them does not move to another log directory. Without the epochs it does not lead; without
the producers it archives nothing, and read_committed consumers of archived records wait.
"""

import asyncio
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.checkpoints import TRUNCATION_POLL_S
from cordwood.storage.after_archive import AfterArchive
from cordwood.storage.errors import OutOfResources
from cordwood.storage.producers import Producers

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition
    from cordwood.storage.log import Log

_events = structlog.get_logger("replication")


async def restore_archived_state(partition: "Partition") -> None:
    """Take lost leader epochs and producers of records that only the archive has from there.

    Raises ArchiveUnavailable, OutOfResources, DiskFailed; DamagedLog if a batch here is damaged.
    """
    log, archive = partition.log, partition.context.archive
    while log.lacks_archived_state and not partition.is_deleted:
        start, end, truncations = max(archive.first_kept(partition), log.log_start), log.local_start, log.truncations
        known_end = archive.end_of(partition)
        if start >= end and known_end is not None:
            # Retention has deleted what only the archive had: the leader tells the log start offset.
            return
        is_cut_off = known_end is not None and known_end < end
        has_lost_some = is_cut_off or _has_lost_batches(partition)
        if has_lost_some and partition.is_leader and not log.lacks_archived_epochs:
            # Markers of archived transactions may be lost with the records that are.
            _events.warning("log.lacks_markers", topic=partition.topic, partition=partition.index,
                            archived_end=known_end, local_start=end)  # fmt: skip
            log.has_no_archived_producers()
            return
        before = await archive.beginning(partition, start, end)
        if (end, truncations) != (log.local_start, log.truncations):
            continue
        if log.lacks_archived_epochs:
            log.restore_epochs(before.epochs, end)
        if log.lacks_archived_producers:
            await _read_again(partition, before.producers)


def _has_lost_batches(partition: "Partition") -> bool:
    """Return whether damaged batches of the only replica cannot come back."""
    leading = partition.leading
    return leading is not None and len(leading.view.assignment.replicas) == 1 and _is_damaged(partition.log)


def _is_damaged(log: "Log") -> bool:
    return any(segment.is_lost or segment.damaged for segment in log.segments)


async def _read_again(partition: "Partition", before: Producers) -> None:
    """Read all batches here again, from the producers `before` them on. Does nothing if batches go meanwhile."""
    log = partition.log
    if _is_damaged(log):
        raise OutOfResources("damaged batches have to be repaired before all of them are read again")
    again = AfterArchive(log, before)
    while partition.is_checkpoint_locked or again.is_behind():
        if again.is_outdated or partition.is_deleted:
            return
        if partition.is_checkpoint_locked:
            await asyncio.sleep(TRUNCATION_POLL_S)
            continue
        try:
            await partition.directory.run_blocking(again.read_on)
        except Exception:
            # A truncation or deletion meanwhile removes what is being read, and any error may come of that.
            if not again.is_outdated and not partition.is_deleted:
                raise
    if not again.is_outdated:
        again.read_on()
        again.put_in_place({})
        partition.producers_replaced()
