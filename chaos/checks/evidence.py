"""Facts that several checkers derive from a history, computed once: the send of a record, its offset, deletions."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from cordwood.chaos.checks.columns import NOTHING, Bools, Places, Rows, RunningMax, consecutive, per_partition
from cordwood.chaos.checks.share_evidence import ShareEvidence
from cordwood.chaos.checks.transaction_evidence import TransactionEvidence
from cordwood.chaos.history import ACKS_ALL, SEQUENCE_BITS, UNKNOWN, Column, History, Operation, Outcome

SendRows = npt.NDArray[np.int32]
"""Rows of the table of sends; NO_SEND for a record that no producer sent to that partition."""
NO_SEND = -1
CHUNK = 1 << 20
NS_PER_MS = 1_000_000
FOREVER_NS = 1 << 62


class Evidence:
    """A history with its derived facts. Only records that were acknowledged with acks=all, or read, must be kept."""

    def __init__(self, history: History) -> None:
        self.history = history
        tables = (
            history.sends,
            history.polls,
            history.assignments,
            history.watermarks,
            history.lookups,
            history.epoch_ends,
            history.deletions,
            history.logs,
            history.transaction_offsets,
            history.offset_reads,
            history.ownerships,
            history.acquisitions,
            history.acknowledgements,
            history.share_starts,
            history.dead_letters,
        )
        self.partitions = 1 + max((int(table.partition.max()) for table in tables if len(table)), default=-1)

    @cached_property
    def transactions(self) -> TransactionEvidence:
        """The facts about transactions."""
        return TransactionEvidence(self)

    @cached_property
    def shares(self) -> ShareEvidence:
        """The facts about share groups."""
        return ShareEvidence(self)

    @cached_property
    def is_acknowledged(self) -> Bools:
        """By send: whether it was acknowledged with acks=all.

        A record with fewer acks may be lost, and its acknowledged offset may be taken by another record.
        """
        sends = self.history.sends
        is_acknowledged: Bools = (sends.outcome == Outcome.OK) & (sends.acks == ACKS_ALL)
        return is_acknowledged

    @cached_property
    def brokers(self) -> list[int]:
        """The brokers whose replicas were read from disk."""
        return sorted({int(broker) for broker in self.history.logs.broker})

    @cached_property
    def placed(self) -> Rows:
        """The acknowledged sends whose offset is known."""
        return np.flatnonzero(self.is_acknowledged & (self.history.sends.offset != UNKNOWN))

    @cached_property
    def polled_sends(self) -> SendRows:
        """By poll: the send of its record."""
        polls = self.history.polls
        return self._find.rows(polls.value, polls.partition)

    @cached_property
    def replicated_sends(self) -> SendRows:
        """By replica record: the send of the record."""
        replicas = self.history.replicas
        return self._find.rows(replicas.value, replicas.partition)

    @cached_property
    def _find(self) -> "_SendsByValue":
        return _SendsByValue(self.history)

    @cached_property
    def is_polled(self) -> Bools:
        """By send: whether any consumer received its record."""
        is_polled = np.zeros(len(self.history.sends) + 1, np.bool_)
        is_polled[self.polled_sends] = True
        return is_polled[:-1]

    @cached_property
    def landed(self) -> Column:
        """By send: the acknowledged offset, else an offset at which a consumer received the record, else UNKNOWN."""
        landed = np.full(len(self.history.sends) + 1, UNKNOWN, np.int64)
        landed[self.polled_sends] = self.history.polls.offset
        landed[self.placed] = self.history.sends.offset[self.placed]
        return landed[:-1]

    @cached_property
    def log_start(self) -> Column:
        """By partition: the highest observed log start offset that a deletion allows. Records below may be deleted."""
        start, watermarks, logs = per_partition(self.partitions, 0), self.history.watermarks, self.history.logs
        allowed = self.is_allowed_start(watermarks.partition, watermarks.log_start, watermarks.at_ns)
        np.maximum.at(start, watermarks.partition[allowed], watermarks.log_start[allowed])
        allowed = self.is_allowed_start(logs.partition, logs.log_start, np.full(len(logs), FOREVER_NS))
        np.maximum.at(start, logs.partition[allowed], logs.log_start[allowed])
        return start

    def is_allowed_start(self, partition: Column, log_start: Column, at_ns: Column) -> Bools:
        """By row: whether a log may start at this offset at this time: at 0, by DeleteRecords, or by retention."""
        deletions = self.history.deletions
        is_allowed: Bools = log_start <= 0
        if not len(deletions) or is_allowed.all():
            return is_allowed
        rows = np.flatnonzero(~is_allowed)
        partition, start, at_ns = partition[rows], log_start[rows], at_ns[rows]
        # `+ 1`: a deletion that was requested at this very time counts.
        by_offset = _since(deletions.partition, deletions.invoked_ns, deletions.before).before(partition, at_ns + 1)
        keep = _since(deletions.partition, deletions.invoked_ns, -deletions.keep_records, deletions.keep_records)
        kept = -keep.before(partition, at_ns + 1)
        age = _since(deletions.partition, deletions.invoked_ns, -deletions.age_ms, deletions.age_ms)
        age_ms = -age.before(partition, at_ns + 1)
        by_size = (kept != NOTHING) & (start <= self._highest_placed[partition] + 1 - kept)
        by_age = (age_ms != NOTHING) & (self._youngest_ns.before(partition, start) <= at_ns - age_ms * NS_PER_MS)
        is_allowed[rows] = (start <= by_offset) | by_size | by_age
        return is_allowed

    @cached_property
    def _highest_placed(self) -> Column:
        """By partition: the highest offset that any record is known to have had."""
        highest = self.highest_polled.copy()
        np.maximum.at(highest, self.history.sends.partition[self.placed], self.history.sends.offset[self.placed])
        return highest

    @cached_property
    def _youngest_ns(self) -> RunningMax:
        """By partition, up to an offset: the latest send time of the records below."""
        sends = self.history.sends
        known = np.flatnonzero(self.landed != UNKNOWN)
        return RunningMax(sends.partition[known], self.landed[known], sends.invoked_ns[known])

    def bound_until(self, partition: Column, leader_epoch: Column, invoked_ns: Column) -> Column:
        """By answer of a leader: the time up to which the leader must know all completed operations.

        The time is that of the request, or that of the first possible election of a successor, if that is earlier: a
        deposed leader without the new metadata answers as of the time when it led. A follower may lag without a bound:
        NOTHING.
        """
        elections = self.history.elections
        until = invoked_ns.copy()
        span = 1 + max(int(elections.leader_epoch.max(initial=0)), int(leader_epoch.max(initial=0)))
        number = elections.partition * span + elections.leader_epoch
        order = np.argsort(number, kind="stable")
        number, after_ns = number[order], elections.after_ns[order]
        place = np.searchsorted(number, partition * span + leader_epoch, "right")
        is_deposed = place < np.searchsorted(number, (partition + 1) * span, "left")
        until[is_deposed] = np.minimum(until[is_deposed], after_ns[place[is_deposed]])
        until[(leader_epoch < 0) | (invoked_ns == UNKNOWN)] = NOTHING
        return until

    @cached_property
    def last_ns(self) -> int:
        """The time of the last timed event."""
        sends, watermarks = self.history.sends, self.history.watermarks
        times = (sends.invoked_ns, sends.ended_ns, watermarks.at_ns, self.history.polls.polled_ns)
        return max(int(column.max(initial=0)) for column in times)

    @cached_property
    def known_end(self) -> RunningMax:
        """By partition and time: the largest committed end known to a client, by acknowledgement, read or watermark."""
        sends, watermarks, placed = self.history.sends, self.history.watermarks, self.placed
        return RunningMax(
            np.concatenate([sends.partition[placed], watermarks.partition, watermarks.partition]),
            np.concatenate([sends.ended_ns[placed], watermarks.at_ns, watermarks.at_ns]),
            np.concatenate([sends.offset[placed] + 1, watermarks.high_watermark, watermarks.read_end]),
        )

    def known_before(self, partition: int, until_ns: int, end: int) -> tuple[Operation, ...]:
        """Return an operation that completed before `until_ns` and proves that the log is committed beyond `end`."""
        sends, watermarks, placed = self.history.sends, self.history.watermarks, self.placed
        sent = placed[(sends.partition[placed] == partition) & (sends.ended_ns[placed] < until_ns)]
        beyond = sent[sends.offset[sent] >= end]
        if len(beyond):
            return (sends.operation(int(beyond[0])),)
        is_beyond = (watermarks.high_watermark > end) | (watermarks.read_end > end)
        is_before = (watermarks.partition == partition) & (watermarks.at_ns < until_ns)
        return tuple(watermarks.operation(int(row)) for row in np.flatnonzero(is_beyond & is_before)[:1])

    @cached_property
    def highest_polled(self) -> Column:
        """By partition: the highest offset that a consumer received; UNKNOWN for none."""
        highest = per_partition(self.partitions, UNKNOWN)
        np.maximum.at(highest, self.history.polls.partition, self.history.polls.offset)
        return highest

    @cached_property
    def has_consumer(self) -> Bools:
        """By partition: whether a consumer read it or was assigned to it."""
        has_consumer = np.zeros(self.partitions, np.bool_)
        has_consumer[self.history.polls.partition] = True
        has_consumer[self.history.assignments.partition] = True
        return has_consumer

    @cached_property
    def places(self) -> Places:
        """Numbers for all places in sends, polls and replicas."""
        sends, polls, replicas = self.history.sends, self.history.polls, self.history.replicas
        return Places(
            self.partitions,
            [
                (sends.partition[self.placed], sends.offset[self.placed]),
                (polls.partition, polls.offset),
                (replicas.partition, replicas.offset),
            ],
        )

    @cached_property
    def irregular_polls(self) -> tuple[Rows, Rows]:
        """Pairs of consecutive polls of one consumer, without reassignment between, with nonconsecutive offsets."""
        polls = self.history.polls
        earlier, later = consecutive(polls.consumer, polls.partition)
        is_irregular = polls.offset[later] - polls.offset[earlier] != 1
        earlier, later = earlier[is_irregular], later[is_irregular]
        goes_on = ~self._is_reassigned(earlier, later)
        return earlier[goes_on], later[goes_on]

    def _is_reassigned(self, earlier: Rows, later: Rows) -> Bools:
        """Return whether the consumer was reassigned between two polls, at the time of either poll included."""
        polls, assignments = self.history.polls, self.history.assignments
        times = np.sort(assignments.since_ns)
        assigned = assignments.consumer * self.partitions + assignments.partition
        begins = np.sort(assigned * len(times) + np.searchsorted(times, assignments.since_ns))
        reader = (polls.consumer[later] * self.partitions + polls.partition[later]) * len(times)
        after = np.searchsorted(times, polls.polled_ns[earlier], "left")
        until = np.searchsorted(times, polls.polled_ns[later], "right")
        return np.searchsorted(begins, reader + after) < np.searchsorted(begins, reader + until)

    def poll_of(self, send: int) -> tuple[Operation, ...]:
        """Return a poll that received the record of this send, where there is one."""
        rows = np.flatnonzero(self.polled_sends == send)[:1]
        return tuple(self.history.polls.operation(int(row)) for row in rows)


def _since(partition: Column, time: Column, number: Column, reported: Column | None = None) -> RunningMax:
    """Return the running maximum of the rows whose number is known."""
    rows = np.flatnonzero((number if reported is None else reported) != UNKNOWN)
    return RunningMax(partition[rows], time[rows], number[rows])


class _SendsByValue:
    """Index from a value to its send. Values are numbered densely, so no sort is needed."""

    def __init__(self, history: History) -> None:
        sends = self._sends = history.sends
        producers = 1 + int(sends.producer.max(initial=-1))
        self._sequences = np.zeros(producers, np.int64)
        np.maximum.at(self._sequences, sends.producer, sends.sequence + 1)
        self._base = np.cumsum(self._sequences) - self._sequences
        self._row = np.full(int(self._sequences.sum()), NO_SEND, np.int32)
        self._row[self._base[sends.producer] + sends.sequence] = np.arange(len(sends), dtype=np.int32)
        assert np.count_nonzero(self._row != NO_SEND) == len(sends), "a value is sent once"

    def rows(self, value: Column, partition: Column) -> SendRows:
        """Return the send of each value; NO_SEND if its partition was sent no such value. Chunks save memory."""
        found = np.empty(len(value), np.int32)
        for start in range(0, len(value), CHUNK):
            piece = slice(start, start + CHUNK)
            found[piece] = self._rows(value[piece], partition[piece])
        return found

    def _rows(self, value: Column, partition: Column) -> SendRows:
        producer, sequence = value >> SEQUENCE_BITS, value & ((1 << SEQUENCE_BITS) - 1)
        found = np.full(len(value), NO_SEND, np.int32)
        known = np.flatnonzero((value >= 0) & (producer < len(self._sequences)))
        known = known[sequence[known] < self._sequences[producer[known]]]
        rows = self._row[self._base[producer[known]] + sequence[known]]
        is_right = (rows != NO_SEND) & (self._sends.partition[rows] == partition[known])
        found[known[is_right]] = rows[is_right]
        return found
