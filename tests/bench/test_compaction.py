"""The comparison of compaction: histories, and what is due of them."""

from cordwood.bench.compaction.history import (
    TRANSACTIONAL,
    HistoryPiece,
    HistoryRecord,
    TransactionEnd,
    last_values,
    pieces,
)


def test_a_history_is_the_same_each_time_and_leaves_no_transaction_open() -> None:
    history = list(pieces(20_000, 100, 7))
    assert history == list(pieces(20_000, 100, 7))
    assert [row.number for piece in history for row in piece.rows] == list(range(20_000))
    last = {piece.producer: piece.end for piece in history if piece.producer < TRANSACTIONAL}
    assert TransactionEnd.OPEN not in last.values()
    assert {piece.end for piece in history} == set(TransactionEnd)


def test_the_last_committed_record_of_a_key_counts_in_the_order_of_the_log() -> None:
    history = [
        HistoryPiece(0, (HistoryRecord(0, 1, 0), HistoryRecord(1, 2, 1)), TransactionEnd.OPEN),
        HistoryPiece(TRANSACTIONAL, (HistoryRecord(2, 1, 2),), TransactionEnd.OPEN),
        HistoryPiece(1, (HistoryRecord(3, 2, None), HistoryRecord(4, 3, 4)), TransactionEnd.ABORT),
        HistoryPiece(0, (HistoryRecord(5, 4, None),), TransactionEnd.COMMIT),
    ]
    assert last_values(iter(history)) == {1: 2, 2: 1, 4: None}
