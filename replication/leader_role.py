"""Leader role of a replica in one leader epoch: appends, pending acknowledgements, followers, ISR changes.

An acknowledgement comes back this way: `Flusher` flushes the log and calls `Partition.announce`, or a follower reports
its flushed end; `LeaderRole` records the end in `LeaderView` and raises the high watermark (`_advance_high_watermark`);
`OffsetWaiters` completes the requests below it; each fills its slot of a connection, which writes the response.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cordwood.replication.assignment import Assignment
from cordwood.replication.leader import LeaderView
from cordwood.replication.read_cache import ReplicationReadCache
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.replication.verification import VerificationGuard, Verifications
from cordwood.replication.waiters import FutureWaiter, OffsetWaiters, Waiter
from cordwood.storage.admission import admit, admit_records
from cordwood.storage.batch import TRANSACTIONAL, BatchHeader, check
from cordwood.storage.budget import Budget
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import StorageError
from cordwood.storage.log import Appended
from cordwood.storage.types import ProducerIdAndEpoch

if TYPE_CHECKING:
    from cordwood.replication.follower_connection import ReplicaStream
    from cordwood.replication.partition import Partition


class FollowerStatus(NamedTuple):
    """Progress of a follower, by its reports; -1 if the follower has not reported in this epoch."""

    broker_id: int
    flushed_end: int
    is_in_sync: bool


class LeaderRole:
    """One partition that this broker leads in one leader epoch. Its waiters and streams end with it (promise 3).

    If the same broker leads in the next epoch, too, producers wait on there: no other replica has led meanwhile.
    """

    __slots__ = (
        "_commit_waiters", "_deletion_waiters", "_flush_waiters", "log", "partition", "read_cache", "streams",
        "verifications", "view",
    )  # fmt: skip

    def __init__(self, partition: "Partition", assignment: Assignment) -> None:
        log, broker_id = partition.log, partition.context.broker_id
        self.partition, self.log = partition, log
        self.view = LeaderView(broker_id, assignment, log.log_end, partition.ack_end, log.log_start)
        self.streams: dict[ReplicaStream, None] = {}
        self.read_cache = ReplicationReadCache(log)
        self.verifications = Verifications(log.producers)
        self._commit_waiters, self._flush_waiters = OffsetWaiters(), OffsetWaiters()
        self._deletion_waiters = OffsetWaiters()
        """Pending DeleteRecords, completed once the low watermark has passed their offset (KIP-107)."""

    def begin(self) -> None:
        """Flush what this replica has in memory only, and commit what already may be."""
        if self.log.flushed_end < self.log.log_end:
            self.partition.directory.flusher.touch(self.partition)
        self._advance_high_watermark()
        if self.log.local_start > self.log.log_start:
            # A former leader has deleted records that are no longer archived, or this replica has lost its log start
            # offset.
            self.delete_records(self.partition.context.archive.first_kept(self.partition))

    def succeed(self, former: "LeaderRole") -> None:
        """Take over the producers that wait in this replica's role of the leader epoch before, and end that role."""
        self._commit_waiters.succeed(former._commit_waiters)
        self._flush_waiters.succeed(former._flush_waiters)
        former.end(Refusal.NOT_LEADER)

    def end(self, reason: Refusal) -> None:
        """End all streams and refuse all waiters: this broker no longer leads."""
        for stream in list(self.streams):
            stream.end()
        for waiters in (self._commit_waiters, self._flush_waiters, self._deletion_waiters):
            waiters.fail(PartitionRefused(reason))

    def assignment_changed(self, assignment: Assignment) -> None:
        """Apply an assignment of the same leader epoch, with other replicas or another ISR."""
        self.view.assignment_changed(assignment)
        self._advance_high_watermark()
        self.low_watermark_moved()
        # A follower that caught up during another ISR change could not be proposed then.
        self.watch_followers()

    def append(
        self,
        batch: Bytes,
        header: BatchHeader,
        now_ms: int,
        must_be_safe: bool,
        budget: Budget | None,
        guard: VerificationGuard | None,
        is_own: bool,
    ) -> Appended:
        """Append a batch that `check` has accepted. As `Partition.append`, which handles the errors."""
        partition, log = self.partition, self.log
        if must_be_safe and not self.view.has_enough_replicas:
            raise PartitionRefused(Refusal.NOT_ENOUGH_REPLICAS)
        refused = partition.refused_sequences
        if refused is not None and refused.by_producer and refused.is_before(header):
            raise PartitionRefused(Refusal.FOLLOWS_REFUSED)
        admit(batch, header, log.config, now_ms, is_own=is_own)
        if header.attributes & TRANSACTIONAL:
            self.verifications.check(header, guard)
        if budget is not None:
            admit_records(batch, header, log.config, budget)
        try:
            appended = log.append(batch, header, partition.leader_epoch, now_ms)
        except OSError as error:
            raise partition.directory.write_failed(error) from error
        if not appended.is_duplicate:
            if refused is not None and refused.by_producer:
                refused.closed(header)
            if header.attributes & TRANSACTIONAL:
                self.verifications.appended(header.producer_id)
            partition.schedule_flush()
            if self.streams:
                self._push_to_followers(appended)
        return appended

    def needs_verification(self, header: BatchHeader) -> bool:
        """Return whether the batch may only be appended with a guard that the transaction coordinator has confirmed."""
        return self.verifications.is_needed(header)

    def begin_verification(self, header: BatchHeader, *, is_v2: bool = False) -> VerificationGuard:
        """Return the guard for the question to the transaction coordinator. Raises StaleProducerEpoch."""
        return self.verifications.begin(header, is_v2=is_v2)

    def append_marker(
        self, producer: ProducerIdAndEpoch, marker: EndTransactionMarker, now_ms: int, *, is_v2: bool
    ) -> Appended:
        """Append the marker that ends a producer's transaction.

        Raises StaleProducerEpoch, TransactionCoordinatorFenced; PartitionRefused if too few replicas are in sync, or if
        the replica fails; OutOfResources; DiskFailed.
        """
        partition, log = self.partition, self.log
        if not self.view.has_enough_replicas:
            raise PartitionRefused(Refusal.NOT_ENOUGH_REPLICAS)
        log.producers.check_marker(producer, marker, is_v2=is_v2)
        batch = encode_marker(producer, marker, now_ms)
        try:
            appended = log.append(batch, check(batch), partition.leader_epoch, now_ms, marker)
        except OSError as error:
            raise partition.directory.write_failed(error) from error
        except StorageError:
            raise
        except Exception as error:
            partition.fail(error)
            raise PartitionRefused(Refusal.OFFLINE) from error
        self.verifications.ended(producer)
        partition.schedule_flush()
        if self.streams:
            self._push_to_followers(appended)
        return appended

    def _push_to_followers(self, appended: Appended) -> None:
        """Schedule a push of the batch to the followers; a small batch is sent from memory."""
        if appended.kept is not None:
            self.read_cache.appended(appended.base_offset, appended.end_offset, appended.kept)
        for stream in self.streams:
            stream.schedule_push()

    def when_committed(self, end: int, waiter: Waiter) -> bool:
        """Complete `waiter` once `end` is committed. Return False, without registering it, if it already is."""
        if end <= self.partition.high_watermark:
            return False
        self._commit_waiters.add(end, waiter)
        return True

    def when_durable(self, end: int, waiter: Waiter) -> bool:
        """As `when_committed`, but for durability on this replica alone (acks=1)."""
        if end <= self.partition.ack_end:
            return False
        self._flush_waiters.add(end, waiter)
        return True

    async def append_committed(self, batch: bytes, now_ms: int, guard: VerificationGuard | None = None) -> int:
        """Append a batch of this broker's own and wait until it is committed. Return its base offset.

        A batch in a transaction has its producer, and needs no sequence numbers. Raises as `Partition.append`, and
        PartitionRefused if the leadership or the partition is lost meanwhile: then the next leader's log may or may not
        have the batch.
        """
        appended = self.partition.append(batch, now_ms, guard=guard, is_own=True)
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
            if waiters.queue:
                waiters.expire(now, PartitionRefused(Refusal.TIMED_OUT))

    def flushed(self) -> None:
        """Complete the requests with acks=1, and then those that the flush has committed."""
        end = self.partition.ack_end
        if self._flush_waiters.queue:
            self._flush_waiters.reached(end)
        self.view.flushed(end)
        self._advance_high_watermark()

    def follower_attached(self, broker_id: int, flushed_end: int, log_start: int, now: float) -> None:
        """Attach a follower whose log is a part of this one, with its flushed end. Raises ImpossibleReport."""
        log_end = self.log.log_end
        self.view.follower_attached(broker_id, min(flushed_end, log_end), log_end, now, log_start)
        self._advance_high_watermark()
        self.low_watermark_moved()
        self._consider_growing(broker_id)

    def follower_flushed(self, broker_id: int, leader_epoch: int, flushed_end: int, now: float) -> None:
        """Record a follower's flushed end. Raises ImpossibleReport."""
        self.view.follower_flushed(broker_id, leader_epoch, flushed_end, self.log.log_end, now)
        self._advance_high_watermark()
        if broker_id not in self.view.assignment.isr:
            self._consider_growing(broker_id)

    def follower_start_flushed(self, broker_id: int, log_start: int) -> None:
        """Record the log start offset that a follower has on disk."""
        self.view.follower_start_flushed(broker_id, log_start)
        self.low_watermark_moved()
        self._consider_growing(broker_id)

    def _advance_high_watermark(self) -> None:
        """Raise the high watermark to the committed end, and complete the waiters below it."""
        partition = self.partition
        assert partition.leading is self, "rule 3: a deposed leader commits nothing"
        assert partition.high_watermark <= self.log.log_end, "rule 1: the watermark never passes the leader's log"
        end = self.view.committed_end()
        if end is None or end <= partition.high_watermark:
            return
        partition.committed_to(end)
        self._commit_waiters.reached(end)
        for stream in self.streams:
            stream.committed()

    def propose_isr(self, may_join: Callable[[int], bool]) -> frozenset[int] | None:
        """Return the ISR that this leader proposes from now on; None if there is nothing to propose."""
        context = self.partition.context
        log_end, watermark = self.log.log_end, self.partition.high_watermark
        return self.view.propose_isr(log_end, watermark, context.now(), context.lag_max_s, may_join)

    def watch_followers(self) -> None:
        """Look for ISR changes at intervals: a follower that reports nothing would not be noticed otherwise."""
        context = self.partition.context
        if self.has_all_in_sync():
            self.view.all_caught_up(context.now())
        else:
            context.wants_isr_change(self.partition)

    def has_all_in_sync(self) -> bool:
        """Return whether nothing can change the ISR before the next append or the next report of a follower."""
        return self.view.is_complete(self.log.log_end)

    def _consider_growing(self, broker_id: int) -> None:
        if self.view.may_grow(broker_id, self.partition.high_watermark):
            self.partition.context.wants_isr_change(self.partition)

    def followers(self) -> tuple[FollowerStatus, ...]:
        """Return the progress of the other replicas."""
        view = self.view
        others = [replica for replica in view.assignment.replicas if replica != view.me]
        ends = {other: followed.flushed_end for other, followed in view.followers.items()}
        return tuple(FollowerStatus(other, ends.get(other, -1), other in view.isr) for other in others)

    def delete_records(self, before: int) -> None:
        """Raise the log start offset, here and on the followers. Raises OffsetOutOfRange.

        No replica that still has the deleted records joins the in-sync set from now on.
        """
        if before > self.log.log_start:
            self.log.raise_log_start(before)
            self.view.log_start = before
            for stream in self.streams:
                stream.committed()
            self.partition.context.start_moved(self.partition)

    @property
    def low_watermark(self) -> int:
        """Offset below which records stay deleted, whichever in-sync replica leads next (KIP-107)."""
        return self.view.low_watermark(self.log.flushed_start)

    async def records_deleted(self, before: int) -> None:
        """Wait until every in-sync replica has deleted the records below `before`, and no restart brings them back.

        Raises PartitionRefused if the leadership is lost.
        """
        if before > self.low_watermark:
            waiter = FutureWaiter()
            self._deletion_waiters.add(before, waiter)
            await waiter.future

    def low_watermark_moved(self) -> None:
        """Complete the waiters up to the low watermark, after a replica has advanced or has left the in-sync set."""
        if self._deletion_waiters.queue:
            self._deletion_waiters.reached(self.low_watermark)
