"""Recorder of the operations of a run as they happen, into the tables of its history."""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Generic, TypeVar

import numpy as np

from cordwood.chaos.history import (
    ACKS_ALL,
    UNKNOWN,
    Acknowledgements,
    AckType,
    Acquisitions,
    Batches,
    Commits,
    CommittedReaders,
    ConsumerAssignments,
    DeadLetterPlaces,
    Elections,
    EpochEnds,
    Faults,
    History,
    LogDeletions,
    Logs,
    Lookups,
    MemberEpochs,
    OffsetReads,
    Outcome,
    Ownerships,
    Polls,
    ProducerSessions,
    ReplicaRecords,
    Sends,
    ShareGroupLimits,
    ShareStarts,
    Table,
    TransactionOffsets,
    Transactions,
    Watermarks,
)

AnyTable = TypeVar("AnyTable", bound=Table)


class _Rows(Generic[AnyTable]):
    """A table that still grows: its cells, row by row."""

    def __init__(self, table: type[AnyTable]) -> None:
        self._table = table
        self._place = {field.name: place for place, field in enumerate(fields(table))}
        self._width = len(self._place)
        self._cells = array("q")

    def __len__(self) -> int:
        return len(self._cells) // self._width

    def append(self, *cells: int) -> None:
        assert len(cells) == self._width, "a row has a cell for each column"
        self._cells.extend(cells)

    def change(self, row: int, column: str, cell: int) -> None:
        self._cells[row * self._width + self._place[column]] = cell

    def table(self) -> AnyTable:
        rows = np.array(self._cells, dtype=np.int64).reshape(-1, self._width)
        return self._table(*map(np.ascontiguousarray, rows.T))


class HistoryBuilder:
    """Recorder of operations as they happen. Each client's operations are recorded in the client's own order.

    Times are nanoseconds of one clock, simulated or real, that all clients share. `leaders_end` returns the largest
    high watermark that any leader of a partition has had so far. Only a simulated world has such an observer.
    """

    def __init__(self, leaders_end: Callable[[int], int] = lambda _partition: UNKNOWN) -> None:
        self._leaders_end = leaders_end
        self._sends = _Rows(Sends)
        self._polls = _Rows(Polls)
        self._assignments = _Rows(ConsumerAssignments)
        self._commits = _Rows(Commits)
        self._sessions = _Rows(ProducerSessions)
        self._transactions = _Rows(Transactions)
        self._transaction_offsets = _Rows(TransactionOffsets)
        self._offset_reads = _Rows(OffsetReads)
        self._member_epochs = _Rows(MemberEpochs)
        self._ownerships = _Rows(Ownerships)
        self._share_groups = _Rows(ShareGroupLimits)
        self._acquisitions = _Rows(Acquisitions)
        self._acknowledgements = _Rows(Acknowledgements)
        self._share_starts = _Rows(ShareStarts)
        self._dead_letters = _Rows(DeadLetterPlaces)
        self._committed_readers = _Rows(CommittedReaders)
        self._watermarks = _Rows(Watermarks)
        self._elections = _Rows(Elections)
        self._lookups = _Rows(Lookups)
        self._epoch_ends = _Rows(EpochEnds)
        self._batches = _Rows(Batches)
        self._deletions = _Rows(LogDeletions)
        self._faults = _Rows(Faults)
        self._logs = _Rows(Logs)
        self._replicas = _Rows(ReplicaRecords)

    def invoke(
        self,
        producer: int,
        sequence: int,
        partition: int,
        at_ns: int,
        acks: int = ACKS_ALL,
        timestamp: int = UNKNOWN,
        content: int = UNKNOWN,
        transaction: int = UNKNOWN,
    ) -> int:
        """Record the start of a send, with outcome INFO until another is recorded. Return the number of the send."""
        self._sends.append(
            producer, sequence, partition, at_ns, UNKNOWN, Outcome.INFO, UNKNOWN, acks, timestamp, content, transaction
        )
        return len(self._sends) - 1

    def sealed(self, send: int, timestamp: int, content: int) -> None:
        """Record the timestamp and the content that the record of a send is sent with."""
        self._sends.change(send, "timestamp", timestamp)
        self._sends.change(send, "content", content)

    def ok(self, send: int, offset: int, at_ns: int) -> None:
        """Record an acknowledgement. `offset` is UNKNOWN for a retried batch whose offset the broker no longer knew."""
        self._end(send, Outcome.OK, at_ns)
        self._sends.change(send, "offset", offset)

    def fail(self, send: int, at_ns: int) -> None:
        """Record an error that guarantees that the record is in no log. In doubt, call `info`."""
        self._end(send, Outcome.FAIL, at_ns)

    def info(self, send: int, at_ns: int) -> None:
        """Record that the outcome stayed unknown to the client."""
        self._end(send, Outcome.INFO, at_ns)

    def _end(self, send: int, outcome: Outcome, at_ns: int) -> None:
        self._sends.change(send, "outcome", outcome)
        self._sends.change(send, "ended_ns", at_ns)

    def poll(
        self,
        consumer: int,
        partition: int,
        offset: int,
        value: int,
        at_ns: int,
        batch: int = 0,
        content: int = UNKNOWN,
    ) -> None:
        """Record one record that a consumer received."""
        self._polls.append(consumer, partition, offset, value, at_ns, batch, content)

    def batch(self, partition: int, base: int, end: int, leader_epoch: int, at_ns: int) -> None:
        """Record one batch that a consumer received: its offsets, and the epoch of the leader that appended it."""
        self._batches.append(partition, base, end, leader_epoch, at_ns)

    def assign(self, consumer: int, partition: int, at_ns: int) -> None:
        """Record that a consumer starts at a position of a partition. Polls before and after are not consecutive."""
        self._assignments.append(consumer, partition, at_ns)

    def commit(self, group: int, generation: int, partition: int, offset: int, outcome: Outcome = Outcome.OK) -> None:
        """Record that a member of this generation committed the next offset to consume."""
        self._commits.append(group, generation, partition, offset, outcome, False)

    def read_commit(self, group: int, generation: int, partition: int, offset: int) -> None:
        """Record the committed offset that a member of this generation fetched; UNKNOWN where there was none."""
        self._commits.append(group, generation, partition, offset, Outcome.OK, True)

    def session(self, transactional_id: int, timeout_ms: int, at_ns: int) -> int:
        """Record that a client sends InitProducerId. Return the number of the session."""
        self._sessions.append(transactional_id, UNKNOWN, UNKNOWN, timeout_ms, at_ns, UNKNOWN)
        return len(self._sessions) - 1

    def session_began(
        self, session: int, at_ns: int, producer_id: int = UNKNOWN, producer_epoch: int = UNKNOWN
    ) -> None:
        """Record the successful answer of InitProducerId, with the identity where the client has it."""
        for column, cell in (("began_ns", at_ns), ("producer_id", producer_id), ("producer_epoch", producer_epoch)):
            self._sessions.change(session, column, cell)

    def begin_transaction(self, session: int, at_ns: int) -> int:
        """Record that a transaction begins, before its first request. Return its number, which its sends name."""
        self._transactions.append(session, at_ns, UNKNOWN, UNKNOWN, UNKNOWN, Outcome.INFO)
        return len(self._transactions) - 1

    def end_transaction(self, transaction: int, at_ns: int, *, is_commit: bool) -> None:
        """Record that the first EndTxn of a transaction is sent."""
        self._transactions.change(transaction, "end_invoked_ns", at_ns)
        self._transactions.change(transaction, "is_commit", is_commit)

    def transaction_ended(self, transaction: int, at_ns: int, outcome: Outcome) -> None:
        """Record the outcome of a transaction for its client; see Transactions."""
        self._transactions.change(transaction, "outcome", outcome)
        self._transactions.change(transaction, "ended_ns", at_ns)

    def send_offset(self, transaction: int, group: int, partition: int, begin: int, end: int) -> None:
        """Record that a transaction that consumed the records from `begin` commits `end` as the offset of a group."""
        self._transaction_offsets.append(transaction, group, partition, begin, end)

    def read_offset(self, group: int, partition: int, offset: int, invoked_ns: int, at_ns: int) -> None:
        """Record a committed offset that was fetched with require_stable; UNKNOWN where there was none."""
        self._offset_reads.append(group, partition, offset, invoked_ns, at_ns)

    def member_epoch(self, group: int, member: int, epoch: int, times_ns: tuple[int, int]) -> None:
        """Record the epoch that a member of a group got in an answer (KIP-848)."""
        self._member_epochs.append(group, member, epoch, *times_ns)

    def owned(
        self, group: int, member: int, partition: int, epoch: int, times_ns: tuple[int, int], coordinator: int = UNKNOWN
    ) -> None:
        """Record a time in which a partition was certainly a member's; see Ownerships."""
        self._ownerships.append(group, member, partition, epoch, coordinator, *times_ns)

    def share_group(self, group: int, delivery_limit: int, *, has_dead_letters: bool = False) -> int:
        """Record the properties of a share group. Return its row."""
        self._share_groups.append(group, delivery_limit, has_dead_letters)
        return len(self._share_groups) - 1

    def dead_letters_read(self, share_group: int) -> None:
        """Record that all dead letters of a share group are in the history, by its row."""
        self._share_groups.change(share_group, "has_dead_letters", 1)

    def acquired(
        self,
        session: tuple[int, int, int],
        partition: int,
        offsets: tuple[int, int],
        delivery_count: int,
        times_ns: tuple[int, int],
        *,
        lock_ms: int = UNKNOWN,
        leader_epoch: int = UNKNOWN,
        outcome: Outcome = Outcome.OK,
    ) -> None:
        """Record a range that a fetch acquired; see Acquisitions. `session` is a group, a member and its session."""
        self._acquisitions.append(
            *session, partition, *offsets, delivery_count, lock_ms, leader_epoch, *times_ns, outcome
        )

    def acknowledged(
        self,
        session: tuple[int, int, int],
        partition: int,
        offsets: tuple[int, int],
        kind: AckType,
        times_ns: tuple[int, int],
        outcome: Outcome = Outcome.OK,
    ) -> None:
        """Record a range that a member of a share group acknowledged; see Acknowledgements."""
        self._acknowledgements.append(*session, partition, *offsets, kind, *times_ns, outcome)

    def share_start(self, group: int, partition: int, start: int, at_ns: int) -> None:
        """Record the start offset of a share group in a partition."""
        self._share_starts.append(group, partition, start, at_ns)

    def dead_letter(self, group: int, partition: int, offset: int) -> None:
        """Record that the record at this place is in the dead-letter topic of a share group."""
        self._dead_letters.append(group, partition, offset)

    def reads_committed(self, consumer: int) -> None:
        """Record that a consumer reads with the isolation level read_committed."""
        self._committed_readers.append(consumer)

    def watermark(
        self,
        client: int,
        partition: int,
        high_watermark: int,
        log_start: int,
        at_ns: int,
        *,
        invoked_ns: int = UNKNOWN,
        leader_epoch: int = UNKNOWN,
        last_stable: int = UNKNOWN,
        read_end: int = UNKNOWN,
    ) -> None:
        """Record a high watermark, a log start offset, or both, as a client received them; see Watermarks."""
        self._watermarks.append(
            client,
            partition,
            high_watermark,
            log_start,
            at_ns,
            invoked_ns,
            leader_epoch,
            last_stable,
            read_end,
            UNKNOWN if read_end == UNKNOWN else self._leaders_end(partition),
        )

    def elected(self, partition: int, leader_epoch: int, after_ns: int) -> None:
        """Record a new leader epoch, which began after `after_ns`. The epochs of a partition increase."""
        self._elections.append(partition, leader_epoch, after_ns)

    def looked_up(
        self,
        client: int,
        partition: int,
        wanted: int,
        answer: tuple[int, int],
        times_ns: tuple[int, int],
        leader_epoch: int = UNKNOWN,
    ) -> None:
        """Record an answer of ListOffsets by time: offset and timestamp, or UNKNOWN twice if no such record exists."""
        self._lookups.append(client, partition, *times_ns, leader_epoch, wanted, *answer)

    def epoch_end(
        self,
        client: int,
        partition: int,
        wanted: int,
        answer: tuple[int, int],
        times_ns: tuple[int, int],
        leader_epoch: int,
    ) -> None:
        """Record an answer of OffsetForLeaderEpoch by the leader of `leader_epoch`: an epoch and its end offset."""
        self._epoch_ends.append(client, partition, *times_ns, leader_epoch, wanted, *answer)

    def delete(
        self,
        partition: int,
        at_ns: int,
        *,
        before: int = UNKNOWN,
        age_ms: int = UNKNOWN,
        keep_records: int = UNKNOWN,
    ) -> int:
        """Record the start of a deletion or of a change of retention; see Deletions. Return its number."""
        self._deletions.append(partition, before, age_ms, keep_records, at_ns, UNKNOWN, Outcome.INFO)
        return len(self._deletions) - 1

    def deleted(self, deletion: int, at_ns: int) -> None:
        """Record that the deletion is complete, or that retention may delete from now on."""
        self._deletions.change(deletion, "outcome", Outcome.OK)
        self._deletions.change(deletion, "ended_ns", at_ns)

    def fault(self, kind: int, since_ns: int, until_ns: int, *, is_alone: bool) -> None:
        """Record a fault; see Faults."""
        self._faults.append(kind, since_ns, until_ns, is_alone)

    def replica(
        self, broker: int, partition: int, log_start: int, high_watermark: int, records: Iterable[tuple[int, int]]
    ) -> None:
        """Record an in-sync replica as read from disk at the end, as (offset, value), even without records."""
        self._logs.append(broker, partition, log_start, high_watermark)
        for offset, value in records:
            self._replicas.append(broker, partition, offset, value)

    def build(self) -> History:
        """Return the history of everything recorded so far."""
        return History(**{field.name: getattr(self, f"_{field.name}").table() for field in fields(History)})
