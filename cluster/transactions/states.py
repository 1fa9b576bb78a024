"""States of a transaction, and the table of their predecessors."""

from collections.abc import Mapping
from enum import Enum


class TransactionState(Enum):
    """The state of one transactional id. The value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    # Sets of states are asked several times in each transaction. Enum's own hash is a function in Python.
    __hash__ = object.__hash__


_S = TransactionState

PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    # A producer is initialized: a new id, or a completed transaction.
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    # The first partition, and each further one.
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Aborted by the producer; by its successor or the timeout, which fence it first; or, in version 2, a transaction
    # without partitions, which the producer aborts to raise its epoch.
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    # All markers are committed.
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    # The transactional id has expired.
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    # The epoch is raised, and the transaction aborted in the same step: this state is never stored.
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""The states from which each state may be entered. Every other transition is a bug."""

DECIDED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""States in which the outcome is fixed, and markers are being written."""

OPEN = DECIDED | {_S.ONGOING}
"""States of a transaction that is not complete."""

COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

EXPIRING = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""States in which an unused transactional id may be removed."""


def may_follow(old: TransactionState, new: TransactionState) -> bool:
    """Return True if `new` may be entered from `old`."""
    return old in PREVIOUS[new]
