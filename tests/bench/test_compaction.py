"""The comparison of compaction: histories, and what is due of them."""

from cordwood.bench.compaction.history import TRANSACTIONAL, End, Piece, Row, last_values, pieces


def test_a_history_is_the_same_each_time_and_leaves_no_transaction_open() -> None:
    history = list(pieces(20_000, 100, 7))
    assert history == list(pieces(20_000, 100, 7))
    assert [row.number for piece in history for row in piece.rows] == list(range(20_000))
    last = {piece.producer: piece.end for piece in history if piece.producer < TRANSACTIONAL}
    assert End.OPEN not in last.values()
    assert {piece.end for piece in history} == set(End)


def test_the_last_committed_record_of_a_key_counts_in_the_order_of_the_log() -> None:
    history = [
        Piece(0, (Row(0, 1, 0), Row(1, 2, 1)), End.OPEN),
        Piece(TRANSACTIONAL, (Row(2, 1, 2),), End.OPEN),
        Piece(1, (Row(3, 2, None), Row(4, 3, 4)), End.ABORT),
        Piece(0, (Row(5, 4, None),), End.COMMIT),
    ]
    assert last_values(iter(history)) == {1: 2, 2: 1, 4: None}
