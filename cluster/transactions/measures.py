"""Counts of the transactions of one coordinator, since the start of its broker."""

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionMeasures:
    """Completed transactions, and aborted ones whose producer is fenced."""

    committed: int = 0
    aborted: int = 0
    replaced: int = 0
    """Fenced by another producer with the same transactional id."""
    timed_out: int = 0
    """Fenced because the transaction exceeded its timeout."""
