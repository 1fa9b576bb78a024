"""Replica of a partition: its log, its role as leader or follower, its high watermark, and its pending requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from cordwood.replication.assignment import NO_LEADER, Assignment
from cordwood.replication.deletion import Deletion
from cordwood.replication.leader import LeaderView
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.read_cache import ReplicationReadCache
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.refused_sequences import RefusedSequences
from cordwood.replication.tasks import report
from cordwood.replication.waiters import FutureWaiter, OffsetWaiters, Waiter, Watcher
from cordwood.storage.admission import admit, admit_records
from cordwood.storage.batch import BatchHeader, check
from cordwood.storage.budget import Budget
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog, DiskFailed, OutOfResources, StorageError
from cordwood.storage.log import Appended, Log
from cordwood.storage.pending_flush import PendingFlush
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.replication.follower_connection import ReplicaStream
    from cordwood.replication.follower_role import FollowerRole


_events = structlog.get_logger("replicas")


class TopicIdPartition(NamedTuple):
    """Topic, partition index and topic id of a partition."""

    topic: str
    partition: int
    topic_id: UUID


class FollowerStatus(NamedTuple):
    """Progress of a follower, as its leader knows it; -1 if the follower has not reported in this epoch."""

    broker_id: int
    flushed_end: int
    is_in_sync: bool


class Partition:
    """The replica of one partition on this broker. Without an assignment it neither leads nor follows.

    `high_watermark` is the end of the committed records: on disk on every in-sync replica, as far as this replica
    knows. With `flush.policy=os` a record counts as soon as the page cache has it.
    """

    def __init__(self, place: TopicIdPartition, log: Log, directory: LogDirectory, context: PartitionContext) -> None:
        self.topic, self.index, self.topic_id = place
        self.log, self.directory = log, directory
        self.error: Exception | None = directory.error
        """Reason why the replica is offline: the log directory has failed, or this replica has (`fail`)."""
        self.leader = NO_LEADER
        self.leader_epoch: int = NO_EPOCH
        self.high_watermark = log.log_start
        self.view: LeaderView | None = None
        self.following: FollowerRole | None = None
        self.streams: dict[ReplicaStream, None] = {}
        self.read_cache = ReplicationReadCache(log)
        self.watchers: dict[Watcher, None] = {}
        self.is_deleted = self.is_checkpoint_locked = False
        self._context = context
        self._refused_sequences = RefusedSequences(context.now, lambda: log.producers)
        self._commit_waiters, self._flush_waiters = OffsetWaiters(), OffsetWaiters()
        self.deletion = Deletion(self)
        self._mark_slot = directory.flushed_offsets.slot(place.topic_id, place.partition)
        self._topic_id_bytes = place.topic_id.bytes
        self._durable_in_memory = 0
        """End of the records that counted as durable when the flush policy changed, on disk or not."""

    @property
    def config(self) -> LogConfig:
        return self.log.config

    @property
    def is_leader(self) -> bool:
        return self.view is not None

    @property
    def is_offline(self) -> bool:
        return self.error is not None

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
        return self.view is not None and leader_epoch == self.leader_epoch and not self.is_offline

    def is_led_for(self, follower: int, leader_epoch: int) -> bool:
        """Return whether this broker leads for `follower`; a follower that learns its role first asks again."""
        is_led = self.leads_in(leader_epoch)
        return is_led and self.view is not None and follower in self.view.assignment.replicas

    def assigned(self, assignment: Assignment) -> bool:
        """Take the role of the assignment. Return True if there is a leader to follow from now on.

        Requests that wait on this replica in another role are refused (promise 3).
        """
        if assignment.leader_epoch == self.leader_epoch:
            if self.view is not None:
                self.view.assignment_changed(assignment)
                self._advance_high_watermark(self.view)
                self.deletion.moved()
                # A follower that caught up during another ISR change could not be proposed then.
                self.watch_followers()
            return False
        assert assignment.leader_epoch > self.leader_epoch, "rule 3: leader epochs never regress"
        self._end_role(Refusal.NOT_LEADER)
        self.leader, self.leader_epoch = assignment.leader, assignment.leader_epoch
        if assignment.leader != self._context.broker_id:
            return assignment.leader != NO_LEADER
        log = self.log
        self.view = LeaderView(self._context.broker_id, assignment, log.log_end, self.ack_end, log.log_start)
        if log.flushed_end < log.log_end:
            self.directory.flusher.touch(self)
        self._advance_high_watermark(self.view)
        return False

    def _end_role(self, reason: Refusal) -> None:
        if self.following is not None:
            self.following.end()
            self.following = None
        self.view = None
        self.read_cache.forget()
        for stream in list(self.streams):
            stream.end()
        self._refuse_waiters(reason)

    def known_high_watermark(self) -> int:
        """Return the high watermark once it covers all that earlier leaders served. Raises PartitionRefused before."""
        if self.view is not None and self.high_watermark < self.view.epoch_start:
            raise PartitionRefused(Refusal.NOT_KNOWN_YET)
        return self.high_watermark

    def append(self, batch: Bytes, now_ms: int, *, must_be_safe: bool = True, budget: Budget | None = None) -> Appended:
        """Append one batch from a client to the page cache; the next group flushes it, and the followers receive it.

        `budget` limits the cost of checking its records; None if they are known to be sound. Raises what `check`,
        `admit` and `Log.append` raise, and with a budget what `admit_records` raises; OutOfResources, of which DiskFull
        is one, if a retry may succeed; DiskFailed if the disk takes no more writes; PartitionRefused if this replica
        does not lead or, with `must_be_safe`, if too few replicas are in sync.
        """
        header = check(batch)
        try:
            appended = self._append(batch, header, now_ms, must_be_safe, budget)
            if not appended.is_duplicate:
                if self._refused_sequences.by_producer:
                    self._refused_sequences.closed(header)
                self.schedule_flush()
                if self.streams:
                    self._push_to_followers(appended)
        except (PartitionRefused, OutOfResources):
            self._refused_sequences.opened(header)
            raise
        except StorageError:
            raise
        except Exception as error:
            self.fail(error)
            raise PartitionRefused(Refusal.OFFLINE) from error
        return appended

    def _push_to_followers(self, appended: Appended) -> None:
        """Schedule a push of the batch to the followers; a small batch is sent from memory."""
        if appended.kept is not None:
            self.read_cache.appended(appended.base_offset, appended.end_offset, appended.kept)
        for stream in self.streams:
            stream.schedule_push()

    def _append(
        self, batch: Bytes, header: BatchHeader, now_ms: int, must_be_safe: bool, budget: Budget | None
    ) -> Appended:
        view, log = self.view, self.log
        if view is None:
            raise PartitionRefused(Refusal.NOT_LEADER)
        if must_be_safe and not view.has_enough_replicas:
            raise PartitionRefused(Refusal.NOT_ENOUGH_REPLICAS)
        if self._refused_sequences.by_producer and self._refused_sequences.is_before(header):
            raise PartitionRefused(Refusal.FOLLOWS_REFUSED)
        admit(batch, header, log.config, now_ms)
        if budget is not None:
            admit_records(batch, header, log.config, budget)
        if self.error is not None:
            raise DiskFailed(str(self.error))
        try:
            return log.append(batch, header, self.leader_epoch, now_ms)
        except OSError as error:
            raise self.directory.write_failed(error) from error

    def when_committed(self, end: int, waiter: Waiter) -> bool:
        """Complete `waiter` once `end` is committed. Return False, without registering it, if it already is."""
        if end <= self.high_watermark:
            return False
        self._commit_waiters.add(end, waiter)
        return True

    def when_durable(self, end: int, waiter: Waiter) -> bool:
        """As `when_committed`, but for durability on this replica alone (acks=1)."""
        if end <= self.ack_end:
            return False
        self._flush_waiters.add(end, waiter)
        return True

    async def append_committed(self, batch: bytes, now_ms: int) -> int:
        """Append a batch of this broker's own and wait until it is committed. Return its base offset.

        Raises as `append`, and PartitionRefused if the leadership or the partition is lost meanwhile: then the next
        leader's log may or may not have the batch.
        """
        appended = self.append(batch, now_ms)
        await self.committed(appended.end_offset)
        return appended.base_offset

    async def committed(self, end: int) -> None:
        """Wait until everything below `end` is committed. Raises PartitionRefused if the leadership is lost."""
        waiter = FutureWaiter()
        if self.when_committed(end, waiter):
            await waiter.future

    def expire_waiters(self, now: float) -> None:
        """Refuse waiters whose deadline has passed. `now` is the event loop's time."""
        for waiters in (self._commit_waiters, self._flush_waiters):
            if waiters:
                waiters.expire(now, PartitionRefused(Refusal.TIMED_OUT))

    def follower_attached(self, broker_id: int, flushed_end: int, log_start: int, now: float) -> None:
        """Attach a follower whose log is a part of this one, with its flushed end. Raises ImpossibleReport."""
        if self.view is not None:
            log_end = self.log.log_end
            self.view.follower_attached(broker_id, min(flushed_end, log_end), log_end, now, log_start)
            self._advance_high_watermark(self.view)
            self.deletion.moved()
            self._consider_growing(broker_id)

    def follower_flushed(self, broker_id: int, leader_epoch: int, flushed_end: int, now: float) -> None:
        """Record a follower's flushed end. Raises ImpossibleReport."""
        view = self.view
        if view is not None:
            view.follower_flushed(broker_id, leader_epoch, flushed_end, self.log.log_end, now)
            self._advance_high_watermark(view)
            if broker_id not in view.assignment.isr:
                self._consider_growing(broker_id)

    def follower_start_flushed(self, broker_id: int, log_start: int) -> None:
        """Record the log start offset that a follower has on disk."""
        if self.view is not None:
            self.view.started(broker_id, log_start)
            self.deletion.moved()
            self._consider_growing(broker_id)

    def follower_detached(self, broker_id: int) -> None:
        if self.view is not None:
            self.view.follower_detached(broker_id)

    def propose_isr(self, may_join: Callable[[int], bool]) -> frozenset[int] | None:
        """Return the ISR that this leader proposes from now on; None if there is nothing to propose."""
        if self.view is None:
            return None
        now, lag_max_s = self._context.now(), self._context.lag_max_s
        return self.view.propose_isr(self.log.log_end, self.high_watermark, now, lag_max_s, may_join)

    def watch_followers(self) -> None:
        """Look for ISR changes at intervals: a follower that reports nothing would not be noticed otherwise."""
        if self.view is not None and not self.view.is_complete(self.log.log_end):
            self._context.wants_isr_change(self)

    @property
    def lag_records(self) -> int:
        """Committed records that this replica lacks, by the last high watermark that its leader sent."""
        known = self.high_watermark if self.following is None else self.following.leader_watermark
        return max(known - self.log.log_end, 0)

    def counts_on(self, broker_id: int) -> bool:
        """Return whether the high watermark waits for this follower."""
        return self.view is not None and self.view.counts_on(broker_id)

    def followers(self) -> tuple[FollowerStatus, ...]:
        """Return the progress of the other replicas if this broker leads; otherwise ()."""
        view = self.view
        if view is None:
            return ()
        others = [replica for replica in view.assignment.replicas if replica != view.me]
        ends = {other: followed.flushed_end for other, followed in view.followers.items()}
        return tuple(FollowerStatus(other, ends.get(other, -1), other in view.isr) for other in others)

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

    def delete_records(self, before: int) -> None:
        """Raise the log start offset, here and on the followers. Raises OffsetOutOfRange, PartitionRefused.

        No replica that still has the deleted records joins the in-sync set from now on.
        """
        if self.view is None:
            raise PartitionRefused(Refusal.NOT_LEADER)
        if before > self.log.log_start:
            self.log.raise_log_start(before)
            self.view.log_start = before
            self.log_start_moved()

    def log_start_moved(self) -> None:
        """Send a new log start offset to the followers, and have it checkpointed soon."""
        for stream in self.streams:
            stream.committed()
        self._context.start_moved(self)

    def log_start_flushed(self) -> None:
        """Record that the log start offset is on disk: a restart brings back nothing before it."""
        if self.following is not None:
            self.following.log_start_flushed()
        self.deletion.moved()

    def committed_to(self, end: int) -> None:
        """Raise the high watermark, up to which consumers read: from followers, too (KIP-392)."""
        if end > self.high_watermark:
            assert end <= self.log.log_end, "rule 1: the watermark never passes the log"
            self.high_watermark = end
            if self.watchers:
                self._context.end_of_tick.moved(self.watchers)

    def _consider_growing(self, broker_id: int) -> None:
        if self.view is not None and self.view.may_grow(broker_id, self.high_watermark):
            self._context.wants_isr_change(self)

    def verify(self, offset: int) -> None:
        """Read and verify the batch with `offset`. Blocks on the disk.

        Raises OffsetOutOfRange, DamagedLog, OutOfResources, DiskFailed.
        """
        found = self.log.slice(offset, 1, self.log.log_end)
        while found is not None and found.size:
            found.next_piece()

    def report_damage(self, damage: DamagedLog) -> None:
        """Report a batch that is not what was written."""
        self._context.found_damage(self, damage)

    def begin_flush(self) -> PendingFlush:
        return self.log.begin_flush()

    def flushed(self, pending: PendingFlush) -> None:
        self.log.flushed(pending)
        if not self.is_deleted:
            self.note_flushed()
            self.directory.uncheckpointed[self] = None

    def announce(self) -> None:
        if self.view is not None:
            self._announce_durable()
        elif self.following is not None:
            self.following.flushed()

    def may_flush_again(self, error: OSError) -> bool:
        return isinstance(self.directory.write_failed(error), OutOfResources)

    def flush_failed(self, pending: PendingFlush, error: OSError) -> None:
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
            self._context.partition_failed(self)

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
        """Stop serving, after a failure of the log directory or of this replica, and refuse all waiters."""
        self.error = error
        self.directory.uncheckpointed.pop(self, None)
        if self.following is not None:
            self.following.end()
            self.following = None
        for stream in list(self.streams):
            stream.end()
        self._refuse_waiters(Refusal.OFFLINE)

    def deleted(self) -> None:
        """End the role of a deleted or reassigned replica: waiters are refused, and nothing is written any more."""
        self.is_deleted = True
        self._end_role(Refusal.DELETED)

    def close(self) -> None:
        """Flush and checkpoint the log, so that the next start has nothing to recover. Blocks on the disk."""
        self.log.close()
        if self.log.segments:
            self.note_flushed()

    def schedule_flush(self) -> None:
        """Schedule a flush after an append: immediately, or later with `flush.policy=os`."""
        if self.log.config.flush_policy is FlushPolicy.OS:
            self.directory.flusher.touch_later(self)
            self.announce()
        else:
            self.directory.flusher.touch(self)

    def _announce_durable(self) -> None:
        if self.error is not None or self.view is None:
            return
        end = self.ack_end
        if self._flush_waiters:
            self._flush_waiters.reached(end)
        self.view.flushed(end)
        self._advance_high_watermark(self.view)

    def _advance_high_watermark(self, view: LeaderView) -> None:
        """Raise the high watermark to the leader's committed end, and complete the waiters below it."""
        if self.error is not None:
            return
        assert self.high_watermark <= self.log.log_end, "rule 1: the watermark never passes the leader's log"
        end = view.committed_end()
        if end is None or end <= self.high_watermark:
            return
        self.committed_to(end)
        self._commit_waiters.reached(end)
        for stream in self.streams:
            stream.committed()

    def _refuse_waiters(self, reason: Refusal) -> None:
        for waiters in (self._commit_waiters, self._flush_waiters, self.deletion.waiters):
            waiters.fail(PartitionRefused(reason))
        self._context.end_of_tick.moved(self.watchers)

    def note_flushed(self) -> None:
        """Write the log's flushed end to the flushed-offsets file."""
        end = self.log.flushed_end
        self.note_end(end, self.log.epochs.epoch_at(end - 1))

    def note_end(self, end: int, epoch: int) -> None:
        """Write to the flushed-offsets file: everything below `end` is on disk, and its last record is of `epoch`."""
        self.directory.flushed_offsets.note(self._mark_slot, self._topic_id_bytes, self.index, end, epoch)
