"""Facts about transactions that several checkers derive from a history: their fate, and what read_committed shows."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cordwood.chaos.checks.columns import Bools, Rows, per_partition
from cordwood.chaos.history import UNKNOWN, Column, Operation, Outcome

if TYPE_CHECKING:
    from cordwood.chaos.checks.evidence import Evidence

NONE = -1
"""The transaction of a record outside transactions, or of an unknown one."""


class TransactionEvidence:
    """The derived facts of a history's transactions."""

    def __init__(self, evidence: "Evidence") -> None:
        self._evidence, self._history = evidence, evidence.history

    @cached_property
    def is_committed(self) -> Bools:
        """By transaction: whether its client got the answer that it is committed."""
        transactions = self._history.transactions
        is_committed: Bools = (transactions.is_commit == 1) & (transactions.outcome == Outcome.OK)
        return is_committed

    @cached_property
    def is_never_committed(self) -> Bools:
        """By transaction: whether its client has not requested a commit, or got a refusal."""
        transactions = self._history.transactions
        is_never: Bools = (transactions.is_commit != 1) | (transactions.outcome == Outcome.FAIL)
        return is_never

    @cached_property
    def of_sends(self) -> Column:
        """By send: its transaction; NONE for a send outside transactions."""
        return self._history.sends.transaction

    @cached_property
    def by_committed_reader(self) -> Bools:
        """By poll: whether the consumer reads with read_committed."""
        found: Bools = np.isin(self._history.polls.consumer, self._history.committed_readers.consumer)
        return found

    @cached_property
    def polls(self) -> Rows:
        """The polls of read_committed consumers that have a record of a transaction."""
        rows: Rows = np.flatnonzero(self.by_committed_reader & (self._evidence.polled_sends >= 0))
        of_transactions: Rows = rows[self.of_sends[self._evidence.polled_sends[rows]] != NONE]
        return of_transactions

    @cached_property
    def of_polls(self) -> Column:
        """By row of `polls`: the transaction of its record."""
        return self.of_sends[self._evidence.polled_sends[self.polls]]

    @cached_property
    def is_seen(self) -> Bools:
        """By send: whether a read_committed consumer received its record."""
        is_seen = np.zeros(len(self.of_sends), np.bool_)
        is_seen[self._evidence.polled_sends[self.polls]] = True
        return is_seen

    @cached_property
    def missed_sends(self) -> Rows:
        """The acknowledged sends of transactions that no read_committed consumer received, and that one read past."""
        evidence, polls, sends = self._evidence, self._history.polls, self._history.sends
        highest = per_partition(evidence.partitions, UNKNOWN)
        rows = np.flatnonzero(self.by_committed_reader)
        np.maximum.at(highest, polls.partition[rows], polls.offset[rows])
        landed = evidence.landed
        is_passed = (landed <= highest[sends.partition]) & (landed >= evidence.log_start[sends.partition])
        is_missed = evidence.is_acknowledged & (self.of_sends != NONE) & (landed != UNKNOWN)
        missed: Rows = np.flatnonzero(is_missed & is_passed & ~self.is_seen)
        return missed

    @cached_property
    def has_seen_part(self) -> Bools:
        """By transaction: whether a read_committed consumer received any of its records."""
        has_seen = np.zeros(len(self._history.transactions), np.bool_)
        has_seen[self.of_polls] = True
        return has_seen

    @cached_property
    def is_shown(self) -> Bools:
        """By send: whether read_committed shows its record: it belongs to no transaction, or to a committed one."""
        is_shown: Bools = (self.of_sends == NONE) | self.is_seen
        if len(self.is_committed):
            is_shown |= self.is_committed[self.of_sends]
        return is_shown

    def operation(self, transaction: int) -> Operation:
        """Return a transaction as an operation, with its number."""
        return {**self._history.transactions.operation(transaction), "transaction": transaction}

    def seen_of(self, transaction: int) -> tuple[Operation, ...]:
        """Return a poll of a read_committed consumer with a record of the transaction, where there is one."""
        rows = self.polls[self.of_polls == transaction][:1]
        return tuple(self._history.polls.operation(int(row)) for row in rows)
