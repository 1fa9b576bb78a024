"""New leaders whose logs lack archived records: their logs begin again at the archive's end (archive rule 5).

Archived records are committed. After an unclean election, or after a power cut of all replicas of a topic with
`flush.policy=os`, a leader's log may end before the archive's end, or have other records there. If it went on from its
own end, two histories would have the same offsets. Until its log begins at the archive's end the replica does not lead:
clients and followers try again.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.tasks import Tasks
from cordwood.replication.truncation import Truncations, full_truncation
from cordwood.storage.batch import BatchHeader, peek
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.log import Log

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

RETRY_S, RETRY_MAX_S = 0.2, 10.0
LOCKED_POLL_S = 0.01

_events = structlog.get_logger("replication")


class ArchivedLeaders:
    """The replicas of one broker that lead once their logs have everything that is archived."""

    def __init__(self, truncations: Truncations, on_led: Callable[[], None]) -> None:
        """`on_led` is called after a replica has taken the leader role."""
        self._truncations, self._on_led = truncations, on_led
        self._tasks = Tasks()

    def add(self, partition: "Partition") -> None:
        """Let a replica lead in its leader epoch as soon as its log has everything that is archived."""
        self._tasks.spawn(self._prepare(partition, partition.leader_epoch))

    async def close(self) -> None:
        await self._tasks.close()

    async def _prepare(self, partition: "Partition", leader_epoch: int) -> None:
        pause_s = RETRY_S
        while _is_awaited(partition, leader_epoch):
            try:
                if await self._begin_after_archive(partition, leader_epoch):
                    self._on_led()
                    return
            except (StorageError, OSError) as error:
                if isinstance(error, DamagedLog):
                    partition.report_damage(error)
                _events.warning("leader.waits_for_archive", topic=partition.topic, partition=partition.index,
                                reason=str(error))  # fmt: skip
            except Exception as error:
                partition.fail(error)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def _begin_after_archive(self, partition: "Partition", leader_epoch: int) -> bool:
        """Return True once the replica leads. Raises StorageError, OSError."""
        archive, log = partition.context.archive, partition.log
        archived = archive.ahead_of(partition)
        if archived is not None:
            start, end = archived
            before = await archive.beginning(partition, min(max(start, log.log_start), end - 1), end)
            run_blocking = partition.directory.run_blocking
            if log.log_end >= end and not await run_blocking(differs, log, before.epochs, end):
                if _is_awaited(partition, leader_epoch):
                    log.restore_epochs(before.epochs, end)
            else:
                while partition.is_checkpoint_locked:
                    await asyncio.sleep(LOCKED_POLL_S)
                if not _is_awaited(partition, leader_epoch):
                    return False
                _events.warning("log.begins_after_archive", topic=partition.topic, partition=partition.index,
                                log_end=log.log_end, archived_end=end)  # fmt: skip
                truncation = full_truncation(partition, end, lambda: _is_awaited(partition, leader_epoch), before)
                if not await self._truncations.truncate(truncation):
                    return False
        if not _is_awaited(partition, leader_epoch):
            return False
        assert partition.awaited is not None, "it is awaited"
        partition.lead(partition.awaited, 0 if archived is None else archived.end)
        return True


def differs(log: Log, archived: LeaderEpochs, end: int) -> bool:
    """Return whether a batch below `end` has another leader epoch than the archive. Blocks on the disk.

    `archived` are the epochs of the archive up to its end, `end`. The log's own epochs do not suffice to discard its
    records: those of a compacted log may lack an epoch if their file was lost. Raises StorageError.
    """
    starts = [max(start.offset, log.local_start) for start in (*archived, *log.epochs) if start.offset < end]
    headers = [_header_at(log, offset) for offset in sorted({*starts, log.local_start}) if offset < end]
    return any(header is not None and _is_other(header, archived, end) for header in headers)


def _is_other(header: BatchHeader, archived: LeaderEpochs, end: int) -> bool:
    if header.base_offset >= end:
        return False
    if header.end > end:
        # A batch without records stands for those that were compacted away.
        return header.record_count > 0
    return header.leader_epoch != archived.epoch_at(header.end - 1)


def _header_at(log: Log, offset: int) -> BatchHeader | None:
    """Return the header of the batch with `offset`, or of the first one after a gap there."""
    found = log.slice(offset, 1, log.log_end)
    return None if found is None else peek(found.next_piece())


def _is_awaited(partition: "Partition", leader_epoch: int) -> bool:
    return partition.awaited is not None and partition.leader_epoch == leader_epoch and not partition.is_deleted
