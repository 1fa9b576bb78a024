"""Replica of a partition: its log, its high watermark, and its role as leader or follower."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from cordwood.replication.assignment import Assignment
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.refused_sequences import RefusedSequences
from cordwood.replication.tasks import report
from cordwood.replication.verification import VerificationGuard
from cordwood.replication.waiters import Watcher
from cordwood.storage.after_archive import lacking_producers
from cordwood.storage.batch import check
from cordwood.storage.budget import Budget
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog, OutOfResources, StorageError
from cordwood.storage.log import Appended, Log
from cordwood.storage.pending_flush import PendingFlush
from cordwood.storage.types import NO_EPOCH, NO_LEADER

if TYPE_CHECKING:
    from cordwood.replication.flusher import Flusher
    from cordwood.replication.follower_role import FollowerRole


_events = structlog.get_logger("replicas")


class TopicIdPartition(NamedTuple):
    """Topic, partition index and topic id of a partition."""

    topic: str
    partition: int
    topic_id: UUID


class Partition:
    """The replica of one partition on this broker. It leads, follows or has no role; an offline one has none.

    `high_watermark` is the end of the records that are known to be committed, on disk on every in-sync replica. With
    `flush.policy=os` a record counts as flushed as soon as it is in the page cache.
    """

    def __init__(self, place: TopicIdPartition, log: Log, directory: LogDirectory, context: PartitionContext) -> None:
        self.topic, self.index, self.topic_id = place
        self.log, self.directory = log, directory
        self.flusher: Flusher | None = directory.flusher
        """The flusher that flushes this replica; None while it takes its place in another log directory."""
        self.error: Exception | None = directory.error
        """Reason why the replica is offline: the log directory has failed, or this replica has (`fail`)."""
        self.leader_id = NO_LEADER
        self.leader_epoch: int = NO_EPOCH
        self.high_watermark = log.log_start
        self.leading: LeaderRole | None = None
        self.following: FollowerRole | None = None
        self.awaited: Assignment | None = None
        """The assignment by which this replica leads once its log has everything that is archived."""
        self.watchers: dict[Watcher, None] = {}
        self.is_deleted = self.is_checkpoint_locked = self.must_be_compacted = False
        self.truncating_to: int | None = None
        """Where a pending truncation ends: with a flush mark above it, a crash would make it look like a loss."""
        self.context = context
        self.refused_sequences: RefusedSequences | None = None
        """None until a batch is refused: most of many partitions have never refused one."""
        self.flush_mark = directory.flushed_offsets.mark(place.topic_id, place.partition)
        self._durable_in_memory = 0
        """End of the records that counted as durable when the flush policy changed, on disk or not."""

    @property
    def is_leader(self) -> bool:
        return self.leading is not None

    @property
    def leader(self) -> LeaderRole:
        """The leader role. Raises PartitionRefused if this replica does not lead."""
        if self.leading is None:
            raise PartitionRefused(Refusal.NOT_LEADER if self.error is None else Refusal.OFFLINE)
        return self.leading

    @property
    def is_offline(self) -> bool:
        return self.error is not None

    @property
    def is_writable(self) -> bool:
        """Whether its files may still change: what a failed replica has in memory may be wrong."""
        return self.error is None and not self.is_deleted

    @property
    def ack_end(self) -> int:
        """End of the records that count as durable on this replica: on disk, or with `flush.policy=os` in memory.

        Only a truncation moves it back: other replicas count on it (rule 1).
        """
        log = self.log
        if log.config.flush_policy is FlushPolicy.OS:
            return log.log_end
        return log.flushed_end if log.flushed_end > self._durable_in_memory else self._durable_in_memory

    def leads_in(self, leader_epoch: int) -> bool:
        return self.leading is not None and leader_epoch == self.leader_epoch

    def leader_for(self, follower: int, leader_epoch: int) -> LeaderRole | None:
        """Return the leader role, if this broker leads for `follower`.

        A follower whose metadata is newer asks again.
        """
        leading = self.leading if self.leads_in(leader_epoch) else None
        return leading if leading is not None and follower in leading.view.assignment.replicas else None

    def assigned(self, assignment: Assignment) -> bool:
        """Take the role of the assignment. Return True if there is a leader to follow from now on.

        Requests that wait on this replica in another role are refused (promise 3).
        """
        if assignment.leader_epoch == self.leader_epoch:
            if self.leading is not None:
                self.leading.assignment_changed(assignment)
            elif self.awaited is not None:
                self.awaited = assignment
            return False
        assert assignment.leader_epoch > self.leader_epoch, "rule 3: leader epochs never regress"
        if self.leading is not None and self._leads_on(assignment):
            self._begin_next_epoch(self.leading, assignment)
            return False
        self._end_role(Refusal.NOT_LEADER)
        self.leader_id, self.leader_epoch = assignment.leader, assignment.leader_epoch
        if self.is_offline:
            return False
        if assignment.leader != self.context.broker_id:
            return assignment.leader != NO_LEADER
        if self.context.archive.ahead_of(self) is None:
            self.lead(assignment)
        else:
            # Archive rule 5, after an unclean election or a loss of records that were not flushed.
            self.awaited = assignment
            self.context.lead_after_archive(self)
        return False

    def lead(self, assignment: Assignment, committed_end: int = 0) -> None:
        """Take the leader role. Archived records, up to `committed_end`, are committed."""
        self.awaited, self.leading = None, LeaderRole(self, assignment)
        self.committed_to(committed_end)
        self.leading.begin()

    def _leads_on(self, assignment: Assignment) -> bool:
        """Return whether this leader leads in the next leader epoch, too, with nothing to fetch from the archive."""
        is_next = assignment.leader_epoch == self.leader_epoch + 1 and assignment.leader == self.context.broker_id
        return is_next and self.context.archive.ahead_of(self) is None

    def _begin_next_epoch(self, former: LeaderRole, assignment: Assignment) -> None:
        self.leader_epoch, self.leading = assignment.leader_epoch, LeaderRole(self, assignment)
        self.leading.succeed(former)
        self.context.end_of_tick.moved(self.watchers)
        self.leading.begin()

    def _end_role(self, reason: Refusal) -> None:
        leading, following = self.leading, self.following
        self.leading = self.following = self.awaited = None
        if following is not None:
            following.end()
        if leading is not None:
            leading.end(reason)
        self.context.end_of_tick.moved(self.watchers)

    def known_high_watermark(self) -> int:
        """Return the high watermark once it covers all that earlier leaders served. Raises PartitionRefused before."""
        if self.leading is not None and self.high_watermark < self.leading.view.epoch_start:
            raise PartitionRefused(Refusal.NOT_KNOWN_YET)
        return self.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """End of the committed records without those from the first transaction on that is not stable.

        A transaction is stable once its marker is committed. A read_committed consumer reads up to here.
        """
        unstable = self.log.producers.transactions.first_unstable(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log.log_start), self.high_watermark)

    def append(
        self,
        batch: Bytes,
        now_ms: int,
        *,
        must_be_safe: bool = True,
        budget: Budget | None = None,
        guard: VerificationGuard | None = None,
        is_own: bool = False,
    ) -> Appended:
        """Append one batch from a client to the page cache; the next group flushes it, and the followers receive it.

        `budget` limits the cost of checking its records; None if they are known to be sound. `guard` is the answered
        verification of a batch that begins a transaction; `is_own` marks a batch that this broker made. Raises what
        `check`, `admit`, `Verifications.check` and `Log.append` raise, and with a budget what `admit_records` raises;
        OutOfResources, of which DiskFull is one, if a retry may succeed; DiskFailed if the disk takes no more writes;
        PartitionRefused if this replica does not lead or, with `must_be_safe`, if too few replicas are in sync.
        """
        header = check(batch)
        try:
            # On the hot path: the property, which is a call, only raises the refusal here.
            leading = self.leading or self.leader
            appended = leading.append(batch, header, now_ms, must_be_safe, budget, guard, is_own)
        except (PartitionRefused, OutOfResources):
            if self.refused_sequences is None:
                self.refused_sequences = RefusedSequences(self.context.now, self.log)
            self.refused_sequences.opened(header)
            raise
        except StorageError:
            raise
        except Exception as error:
            self.fail(error)
            raise PartitionRefused(Refusal.OFFLINE) from error
        return appended

    def configure(self, config: LogConfig) -> None:
        """Apply the topic's new configuration."""
        self._durable_in_memory = self.ack_end
        has_new_policy = config.flush_policy is not self.log.config.flush_policy
        self.log.config = config
        if has_new_policy:
            self.directory.flusher.touch(self)
            self.announce()

    def truncated(self) -> None:
        """Lower the high watermark and the durable end to the log end, after a truncation.

        The high watermark rises if the log begins after it now.
        """
        log = self.log
        self.high_watermark = max(min(self.high_watermark, log.log_end), log.log_start)
        self._durable_in_memory = min(self._durable_in_memory, log.log_end)

    def log_start_flushed(self) -> None:
        """Record that the log start offset is on disk: a restart brings back nothing before it."""
        if self.leading is not None:
            self.leading.low_watermark_moved()
        elif self.following is not None:
            self.following.log_start_flushed()

    def committed_to(self, end: int) -> None:
        """Raise the high watermark, up to which consumers read: from followers, too (KIP-392)."""
        if end > self.high_watermark:
            assert end <= self.log.log_end, "rule 1: the watermark never passes the log"
            self.high_watermark = end
            if self.log.producers.transactions.replaced:
                # What a truncation may still remove is kept, and what recovery may not find.
                self.log.producers.transactions.committed_to(min(end, self.log.flushed_end))
            if self.watchers:
                self.context.end_of_tick.moved(self.watchers)

    def producers_replaced(self) -> None:
        """Record that the log's producers were read again from its batches."""
        self.log.producers.transactions.committed_to(min(self.high_watermark, self.log.flushed_end))
        self.context.end_of_tick.moved(self.watchers)

    def report_damage(self, damage: DamagedLog) -> None:
        """Report a batch that differs from what was written."""
        self.context.found_damage(self, damage)

    def report_lacking_producers(self) -> None:
        """Let the repairs ask the archive for the producers of its records, if the log lacks them."""
        if self.log.lacks_archived_producers:
            self.report_damage(lacking_producers(self.log))

    def begin_flush(self) -> PendingFlush:
        """Take the files that the next group syncs. Raises OSError, with nothing taken."""
        return self.log.begin_flush()

    def flushed(self, pending: PendingFlush) -> None:
        """Record that everything of `pending` is on disk. Waiters are not completed yet.

        A replica that has failed meanwhile keeps its flushed offsets: the next start recovers from them. Raises OSError
        if the flushed end cannot be written.
        """
        self.log.flushed(pending)
        # As `is_writable`, without the call: each group commit comes here for each of its replicas.
        if self.error is None and not self.is_deleted:
            self.note_flushed()
            self.directory.uncheckpointed[self] = None

    def announce(self) -> None:
        """Pass the new end to the role: a leader completes its waiters, a follower reports."""
        if self.leading is not None:
            self.leading.flushed()
        elif self.following is not None:
            self.following.flushed()

    def may_flush_again(self, error: OSError) -> bool:
        """Return whether to try again later, after an error that lost nothing; otherwise the replica is offline."""
        return isinstance(self.directory.write_failed(error), OutOfResources)

    def flush_failed(self, pending: PendingFlush, error: OSError) -> None:
        """Record that something of `pending` did not reach the disk. Nothing of the replica is synced again."""
        self.log.flush_failed(pending)
        self.directory.fail(error)

    def fail(self, error: Exception) -> None:
        """Take this replica offline, after a broken invariant of its own or an unexpected exception in its work.

        It is offline until the broker restarts; another broker takes over. The other replicas go on.
        """
        if self.error is None:
            _events.critical("partition.failed", topic=self.topic, partition=self.index, reason=repr(error))
            report(f"partition {self.topic}-{self.index} failed", error)
            self.go_offline(error)
            self.context.partition_failed(self)

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Let an unexpected exception fail this replica alone; expected errors are raised."""
        try:
            yield
        except (StorageError, OSError, PartitionRefused):
            raise
        except Exception as error:
            self.fail(error)

    def go_offline(self, error: Exception) -> None:
        """End the role, after a failure of the log directory or of this replica. All waiters are refused."""
        self.error = error
        self.directory.uncheckpointed.pop(self, None)
        self._end_role(Refusal.OFFLINE)

    def deleted(self, reason: Refusal = Refusal.DELETED) -> None:
        """End the role of a deleted or reassigned replica: waiters are refused, and nothing is written any more."""
        self.is_deleted = True
        self._end_role(reason)

    def close(self) -> None:
        """Flush and checkpoint the log, so that the next start has nothing to recover. Blocks on the disk."""
        self.log.close()
        if self.log.segments:
            self.note_flushed()

    def schedule_flush(self) -> None:
        """Schedule a flush after an append: immediately, or later with `flush.policy=os`."""
        self.directory.free_bytes_at_refusal = None
        if self.log.config.flush_policy is FlushPolicy.OS:
            self.directory.flusher.touch_later(self)
            self.announce()
        else:
            self.directory.flusher.touch(self)

    def note_flushed(self) -> None:
        """Write the log's flushed end to the flushed-offsets file, or the lower end of a pending truncation."""
        log, end = self.log, self.log.flushed_end
        is_truncating = log.has_unsynced_truncation
        if self.truncating_to is not None:
            end, is_truncating = min(end, self.truncating_to), True
        self.flush_mark.note(end, log.epochs.epoch_at(end - 1), is_truncating=is_truncating)
