"""Follower role of a replica in one leader epoch: append the leader's batches, truncate, report progress."""

from typing import TYPE_CHECKING

from cordwood.replication.follower import (
    ImpossibleAnswer,
    check_epochs,
    check_follows,
    committed_end,
    truncation_end,
)
from cordwood.replication.truncation import Truncation, full_truncation, truncation_to
from cordwood.storage.batch import headers
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DiskFailed
from cordwood.storage.state import ArchivedBeginning

if TYPE_CHECKING:
    from cordwood.replication.leader_connection import LeaderConnection
    from cordwood.replication.partition import Partition


class CheckpointUnderWay(Exception):
    """The log's checkpoint is being written, and may have more than a truncation would leave: try again later."""


class FollowerRole:
    """One partition that this broker follows in one leader epoch, under one stream number."""

    __slots__ = (
        "_connection", "is_answered", "leader_epoch", "leader_watermark", "partition", "refusals", "stream",
        "uncredited_bytes",
    )  # fmt: skip

    def __init__(self, connection: "LeaderConnection", partition: "Partition", stream: int, refusals: int = 0) -> None:
        self._connection, self.partition, self.stream = connection, partition, stream
        self.refusals = refusals
        """Count of refused requests for the partition in a row."""
        self.is_answered = False
        self.leader_epoch = partition.leader_epoch
        self.uncredited_bytes = 0
        """Bytes taken from the leader's window, and not yet returned as credit."""
        self.leader_watermark = 0
        """High watermark of the leader, whether this replica has all records below it or not."""

    @property
    def lag_records(self) -> int:
        """Committed records that this replica lacks, by the last high watermark that its leader sent."""
        return max(self.leader_watermark - self.partition.log.log_end, 0)

    def flushed(self) -> None:
        """Report a new flushed end to the leader."""
        self._connection.report(self)

    def log_start_flushed(self) -> None:
        """Report to the leader that the log start offset is on disk."""
        self._connection.start(self)

    def end(self) -> None:
        """Leave the stream: the partition has another leader, or none, or is deleted."""
        self._connection.leave(self)

    def replicate(
        self,
        data: Bytes,
        watermark: int,
        log_start: int,
        now_ms: int,
        *,
        may_have_gaps: bool = False,
        unflushed: "dict[Partition, None] | None" = None,
    ) -> None:
        """Append the leader's batches, perhaps none, and take its high watermark and log start offset.

        With `unflushed`, the partition is added to it, and the caller schedules the flush. Raises CorruptBatch, with
        nothing written, OutOfResources or DiskFailed.
        """
        partition = self._followed()
        log = partition.log
        self.uncredited_bytes += len(data)
        self.leader_watermark = watermark
        if data:
            batches = headers(data)
            check_follows(batches, log.log_end, may_have_gaps=may_have_gaps)
            check_epochs(batches, log.epochs.latest, self.leader_epoch)
            try:
                log.append_stamped(data, batches, now_ms)
            except OSError as error:
                raise partition.directory.write_failed(error) from error
            if unflushed is None:
                partition.schedule_flush()
            else:
                unflushed[partition] = None
        if log_start > log.log_start:
            log.raise_log_start(min(log_start, log.log_end))
            partition.context.start_moved(partition)
        partition.committed_to(committed_end(watermark, log.log_end, partition.high_watermark))

    def truncation(self, leader_epoch: int, leader_end: int) -> Truncation:
        """Return the truncation of records that the leader does not have; the flushed end is lowered already.

        Raises OSError, StorageError, CheckpointUnderWay, ImpossibleAnswer.
        """
        partition = self._truncatable()
        log = partition.log
        end = truncation_end(log.epochs, log.log_end, leader_epoch, leader_end)
        if end < log.local_start:
            # With an archived beginning, the log continues from the leader's local start, or from its own log start.
            return full_truncation(partition, min(leader_end, log.log_start), self._is_current)
        return truncation_to(partition, end, self._is_current)

    def full_truncation(self, offset: int, before: ArchivedBeginning | None = None) -> Truncation:
        """Return the removal of the whole log, since the leader's log begins at `offset`. Raises as `truncation`.

        `before` is what only the archive has of the leader's log.
        """
        partition = self._truncatable()
        log_end = partition.log.log_end
        if offset <= log_end:
            raise ImpossibleAnswer(f"the leader has no records before {offset}, but this log ends at {log_end}")
        return full_truncation(partition, offset, self._is_current, before)

    def _is_current(self) -> bool:
        return self.partition.following is self

    def _truncatable(self) -> "Partition":
        partition = self._followed()
        if partition.is_checkpoint_locked:
            raise CheckpointUnderWay
        return partition

    def _followed(self) -> "Partition":
        """Return the partition, if the disk still takes writes. Raises DiskFailed."""
        partition = self.partition
        assert self.leader_epoch == partition.leader_epoch, "rule 4: all work of a follower is fenced by the epoch"
        assert partition.leading is None, "rule 3: a leader is no follower"
        if partition.error is not None:
            raise DiskFailed(str(partition.error))
        return partition
