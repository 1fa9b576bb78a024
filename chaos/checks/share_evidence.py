"""Facts about share groups that several checkers derive from a history: who held which record, and until when."""

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cordwood.chaos.checks.columns import NOTHING, Bools, Rows, RunningMax
from cordwood.chaos.history import UNKNOWN, AckType, Column, Outcome

if TYPE_CHECKING:
    from cordwood.chaos.checks.evidence import Evidence

OFFSET_BITS = 44
NS_PER_MS = 1_000_000
FOREVER_NS = 1 << 62
CLOCK_RATES = 0.97, 1.03
"""A broker's clock may be so much slower or faster than the one of the history."""
UNSETTLED_NS = 30 * 1_000_000_000
"""The time after a fault or election in which leaders may change, where the epoch of the one that answered is unknown.
"""
FINAL = (AckType.ACCEPT, AckType.REJECT)


class ByRecord(NamedTuple):
    """Ranges of offsets record by record, in the order of their rows."""

    row: Rows
    """The row of the range in its table."""
    record: Column
    """One number for group, partition and offset."""


class ShareEvidence:
    """The derived facts of a history's share groups."""

    def __init__(self, evidence: "Evidence") -> None:
        self._evidence, self._history = evidence, evidence.history

    @cached_property
    def deliveries(self) -> ByRecord:
        """The acquired records, ordered by record, and then by the time of the answer."""
        acquisitions = self._history.acquisitions
        rows = np.flatnonzero(acquisitions.outcome == Outcome.OK)
        found = self._by_record(rows, acquisitions.group, acquisitions.partition, acquisitions.begin, acquisitions.end)
        order = np.lexsort((acquisitions.at_ns[found.row], found.record))
        return ByRecord(found.row[order], found.record[order])

    @cached_property
    def acknowledged(self) -> ByRecord:
        """The records that were acknowledged in any way and with any outcome, ordered by record."""
        rows = np.arange(len(self._history.acknowledgements))
        reported = self._history.acknowledgements
        found = self._by_record(rows, reported.group, reported.partition, reported.begin, reported.end)
        order = np.argsort(found.record, kind="stable")
        return ByRecord(found.row[order], found.record[order])

    @cached_property
    def finished(self) -> ByRecord:
        """The records that were accepted or rejected with success, ordered by record, and then by time."""
        reported, acknowledged = self._history.acknowledgements, self.acknowledged
        is_final = np.isin(reported.type[acknowledged.row], FINAL) & (reported.outcome[acknowledged.row] == Outcome.OK)
        row, record = acknowledged.row[is_final], acknowledged.record[is_final]
        order = np.lexsort((reported.ended_ns[row], record))
        return ByRecord(row[order], record[order])

    @cached_property
    def successions(self) -> tuple[Rows, Rows]:
        """Pairs of consecutive deliveries of one record of which the first was surely acquired first, as rows.

        A larger delivery count comes later, and so does a fetch that was sent after the answer to the other.
        """
        acquisitions, (row, record) = self._history.acquisitions, self.deliveries
        follows = np.flatnonzero(record[1:] == record[:-1])
        earlier, later = row[follows], row[follows + 1]
        is_ordered = (acquisitions.delivery_count[later] > acquisitions.delivery_count[earlier]) | (
            acquisitions.invoked_ns[later] > acquisitions.at_ns[earlier]
        )
        return follows[is_ordered], follows[is_ordered] + 1

    @cached_property
    def alive_ns(self) -> Column:
        """By acquisition: when the last request of its session to the partition was sent that has succeeded.

        The session has existed until then, and with it its locks. A request may be refused because it does not.
        """
        acquisitions, reported = self._history.acquisitions, self._history.acknowledgements
        acquired = np.flatnonzero(acquisitions.outcome == Outcome.OK)
        accepted = np.flatnonzero(reported.outcome == Outcome.OK)
        span = self._evidence.partitions
        place = np.concatenate(
            [
                acquisitions.session[acquired] * span + acquisitions.partition[acquired],
                reported.session[accepted] * span + reported.partition[accepted],
            ]
        )
        sent_ns = np.concatenate([acquisitions.invoked_ns[acquired], reported.invoked_ns[accepted]])
        last = RunningMax(place, np.zeros(len(place), np.int64), sent_ns)
        ends = np.full(len(acquisitions), FOREVER_NS)
        return last.before(acquisitions.session * span + acquisitions.partition, ends)

    def held_until_ns(self, deliveries: Rows, following: Rows) -> Column:
        """Return, by delivery, until when its member has surely held the record, if the leader has not changed.

        `following` are the next deliveries of the same records: a later renewal may belong to those.
        """
        acquisitions, row = self._history.acquisitions, self.deliveries.row[deliveries]
        locked_ns = (acquisitions.lock_ms[row] * (CLOCK_RATES[0] * NS_PER_MS)).astype(np.int64)
        locked_until = np.maximum(acquisitions.invoked_ns[row], self._renewed_ns(deliveries, following)) + locked_ns
        until = np.minimum(locked_until, self.alive_ns[row])
        held_until: Column = np.minimum(until, self._given_back_ns(deliveries))
        return held_until

    def lock_over_ns(self, deliveries: Rows) -> Column:
        """Return, by delivery, when its lock was surely over; never if it was acknowledged or renewed."""
        acquisitions, row = self._history.acquisitions, self.deliveries.row[deliveries]
        locked_ns = (acquisitions.lock_ms[row] * (CLOCK_RATES[1] * NS_PER_MS)).astype(np.int64)
        over_ns = acquisitions.at_ns[row] + locked_ns
        over_ns[self._given_back_ns(deliveries, is_renewal_counted=True) != FOREVER_NS] = FOREVER_NS
        return over_ns

    def _renewed_ns(self, deliveries: Rows, following: Rows) -> Column:
        """Return, by delivery, when its session last sent a renewal that succeeded before the next; or UNKNOWN."""
        reported = self._history.acknowledgements
        is_renewal = (reported.type == AckType.RENEW) & (reported.outcome == Outcome.OK)
        row, record = self.acknowledged
        row, record = row[is_renewal[row]], record[is_renewal[row]]
        if not len(row):
            return np.full(len(deliveries), UNKNOWN, np.int64)
        before_ns = self._history.acquisitions.invoked_ns[self.deliveries.row[following]]
        return self._sent_ns(deliveries, row, record, before_ns)

    def _given_back_ns(self, deliveries: Rows, *, is_renewal_counted: bool = False) -> Column:
        """Return, by delivery, when its session first sent an acknowledgement of the record; FOREVER_NS if never."""
        row, record = self.acknowledged
        if not is_renewal_counted:
            is_other = self._history.acknowledgements.type[row] != AckType.RENEW
            row, record = row[is_other], record[is_other]
        return self._sent_ns(deliveries, row, record)

    def _sent_ns(self, deliveries: Rows, row: Rows, record: Column, before_ns: Column | None = None) -> Column:
        """Return, by delivery, when its session first sent one of these acknowledgements after it; FOREVER_NS if never.

        With `before_ns`, return when it sent the last one that was answered before; UNKNOWN if there is none.
        """
        acquisitions, reported = self._history.acquisitions, self._history.acknowledgements
        begin = np.searchsorted(record, self.deliveries.record[deliveries], "left").tolist()
        end = np.searchsorted(record, self.deliveries.record[deliveries], "right").tolist()
        found = np.full(len(deliveries), FOREVER_NS if before_ns is None else UNKNOWN, np.int64)
        of_deliveries = self.deliveries.row[deliveries].tolist()
        for place, (delivery, first, after) in enumerate(zip(of_deliveries, begin, end, strict=True)):
            own = row[first:after][reported.session[row[first:after]] == acquisitions.session[delivery]]
            own = own[reported.invoked_ns[own] >= acquisitions.at_ns[delivery]]
            if before_ns is not None:
                own = own[reported.ended_ns[own] < before_ns[place]]
            if len(own):
                found[place] = reported.invoked_ns[own].min() if before_ns is None else reported.invoked_ns[own].max()
        return found

    def has_one_leader(self, earlier: Rows, later: Rows) -> Bools:
        """Return, by pair of acquisitions, whether one leader, in one epoch, surely answered both.

        The next leader does not have acquisitions: only acknowledgements and delivery counts are durable.
        """
        acquisitions, elections, faults = self._history.acquisitions, self._history.elections, self._history.faults
        epoch = acquisitions.leader_epoch[earlier]
        is_one: Bools = (epoch == acquisitions.leader_epoch[later]) & (epoch != UNKNOWN)
        newest = RunningMax(elections.partition, elections.after_ns, elections.leader_epoch)
        is_one &= newest.before(acquisitions.partition[later], acquisitions.at_ns[later]) <= epoch
        unknown = np.flatnonzero((epoch == UNKNOWN) & (acquisitions.leader_epoch[later] == UNKNOWN))
        begin, end = acquisitions.invoked_ns[earlier[unknown]], acquisitions.at_ns[later[unknown]]
        elected = RunningMax(elections.partition, elections.after_ns, elections.after_ns)
        is_calm: Bools = begin > elected.before(acquisitions.partition[later[unknown]], end) + UNSETTLED_NS
        for since_ns, until_ns in zip(faults.since_ns.tolist(), faults.until_ns.tolist(), strict=True):
            is_calm &= (end < since_ns) | (begin > until_ns + UNSETTLED_NS)
        is_one[unknown] = is_calm
        return is_one

    def delivered_after(self, record: Column, at_ns: Column) -> Bools:
        """Return whether the record, or an earlier one there, was delivered by a fetch that was sent later."""
        row, delivered = self.deliveries
        invoked_ns = self._history.acquisitions.invoked_ns[row]
        place = delivered >> OFFSET_BITS
        # With negated times, what is before is what is later; and the least record is the largest negated one.
        least = RunningMax(place, -invoked_ns, -delivered)
        found = least.before(record >> OFFSET_BITS, -at_ns)
        is_known: Bools = (found != NOTHING) & (-found <= record)
        return is_known

    def record_of(self, group: Column | int, partition: Column | int, offset: Column) -> Column:
        """Return the number of each record."""
        record: Column = (group * self._evidence.partitions + partition << OFFSET_BITS) | offset
        return record

    def _by_record(self, rows: Rows, group: Column, partition: Column, begin: Column, end: Column) -> ByRecord:
        sizes = np.maximum(end[rows] - begin[rows], 0)
        row = np.repeat(rows, sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return ByRecord(row, self.record_of(group[row], partition[row], begin[row] + within))
