"""A random history of a compacted topic, and the records that a consumer must get in the end. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

PIECE_MIN, PIECE_MAX = 100, 2000
TOMBSTONES, COMMITS, ABORTS = 0.1, 0.6, 0.2
"""Share of tombstones, and of a transaction's pieces after which it is committed or aborted. Else it stays open."""
TRANSACTIONAL = 3
"""Transactional producers. The producer of this number is idempotent, and its records belong to no transaction."""


class TransactionEnd(Enum):
    """What becomes of the producer's transaction after a piece."""

    COMMIT = "commit"
    ABORT = "abort"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A record. `number` is its place in the history; `key` a number, `value` None for a tombstone."""

    number: int
    key: int
    value: int | None


@dataclass(frozen=True, slots=True)
class HistoryPiece:
    """Records that one producer sends in one go."""

    producer: int
    rows: tuple[HistoryRecord, ...]
    end: TransactionEnd


def pieces(records: int, keys: int, seed: int) -> Iterator[HistoryPiece]:
    """Yield the pieces of a history. After the last one, no transaction is open."""
    rng, number, is_open = random.Random(seed), 0, [False] * TRANSACTIONAL
    while number < records:
        producer = rng.randrange(TRANSACTIONAL + 1)
        count = min(rng.randint(PIECE_MIN, PIECE_MAX), records - number)
        rows = tuple([_row(rng, number + at, keys) for at in range(count)])
        number += count
        end = TransactionEnd.OPEN
        if producer < TRANSACTIONAL:
            draw = rng.random()
            end = (
                TransactionEnd.COMMIT
                if draw < COMMITS
                else TransactionEnd.ABORT
                if draw < COMMITS + ABORTS
                else TransactionEnd.OPEN
            )
            is_open[producer] = end is TransactionEnd.OPEN
        yield HistoryPiece(producer, rows, end)
    for producer, has_transaction in enumerate(is_open):
        if has_transaction:
            yield HistoryPiece(producer, (), TransactionEnd.COMMIT if rng.random() < COMMITS else TransactionEnd.ABORT)


def last_values(history: Iterator[HistoryPiece]) -> dict[int, int | None]:
    """Return the last committed value of each key; None where that is a tombstone."""
    committed: list[HistoryRecord] = []
    open_rows: dict[int, list[HistoryRecord]] = {producer: [] for producer in range(TRANSACTIONAL)}
    for piece in history:
        if piece.producer == TRANSACTIONAL:
            committed += piece.rows
            continue
        open_rows[piece.producer] += piece.rows
        if piece.end is not TransactionEnd.OPEN:
            committed += open_rows[piece.producer] if piece.end is TransactionEnd.COMMIT else ()
            open_rows[piece.producer] = []
    # Records count in the order of the log, not of the commits.
    return {row.key: row.value for row in sorted(committed, key=lambda row: row.number)}


def _row(rng: random.Random, number: int, keys: int) -> HistoryRecord:
    return HistoryRecord(number, rng.randrange(keys), None if rng.random() < TOMBSTONES else number)
