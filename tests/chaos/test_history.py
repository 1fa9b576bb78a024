"""Histories of operations: columns, rows in words, and files."""

import io

import numpy as np
import pytest

from cordwood.chaos.history import UNKNOWN, AckType, History, NotAHistory, Outcome, content_of, value_of
from cordwood.chaos.history_builder import HistoryBuilder


@pytest.fixture
def history() -> History:
    """Return a history with a row in every table. One send has succeeded, one has failed, and one is open."""
    builder = HistoryBuilder()
    first, second, _ = (builder.invoke(2, sequence, partition=1, at_ns=10 + sequence) for sequence in range(3))
    builder.sealed(first, timestamp=5, content=6)
    builder.batch(1, 7, 8, leader_epoch=2, at_ns=30)
    builder.elected(1, 2, after_ns=1)
    builder.looked_up(3, 1, 100, (7, 100), (30, 31), leader_epoch=2)
    builder.epoch_end(3, 1, 2, (2, 8), (30, 31), leader_epoch=2)
    builder.deleted(builder.delete(1, 40, before=7), 41)
    builder.fault(0, 1, 2, is_alone=True)
    builder.fail(second, at_ns=20)
    builder.ok(first, offset=7, at_ns=21)
    builder.poll(3, 1, 7, value_of(2, 0), at_ns=30, batch=4)
    builder.assign(3, 1, at_ns=5)
    builder.commit(1, 2, 1, 8, Outcome.INFO)
    builder.read_commit(1, 3, 1, UNKNOWN)
    session = builder.session(4, timeout_ms=1000, at_ns=50)
    builder.session_began(session, 51, producer_id=9, producer_epoch=1)
    transaction = builder.begin_transaction(session, at_ns=52)
    builder.send_offset(transaction, 1, 1, 7, 8)
    builder.end_transaction(transaction, 53, is_commit=True)
    builder.transaction_ended(transaction, 54, Outcome.OK)
    builder.read_offset(1, 1, 8, 55, 56)
    builder.reads_committed(3)
    builder.member_epoch(1, 3, 2, (57, 58))
    builder.owned(1, 3, 1, 2, (58, 59), coordinator=2)
    builder.share_group(2, 5, has_dead_letters=True)
    builder.acquired((2, 3, 1), 1, (7, 8), 1, (60, 61), lock_ms=1000, leader_epoch=2)
    builder.acknowledged((2, 3, 1), 1, (7, 8), AckType.REJECT, (62, 63))
    builder.share_start(2, 1, 8, 64)
    builder.dead_letter(2, 1, 7)
    builder.watermark(3, 1, 8, 0, at_ns=30)
    builder.replica(1, 1, log_start=0, high_watermark=8, records=[(7, value_of(2, 0))])
    builder.replica(2, 1, log_start=0, high_watermark=8, records=[])
    return builder.build()


def test_a_send_is_open_until_its_outcome_is_recorded(history: History) -> None:
    assert history.sends.outcome.tolist() == [Outcome.OK, Outcome.FAIL, Outcome.INFO]
    assert history.sends.offset.tolist() == [7, UNKNOWN, UNKNOWN]
    assert history.sends.ended_ns.tolist() == [21, 20, UNKNOWN]
    assert history.sends.value.tolist() == [value_of(2, 0), value_of(2, 1), value_of(2, 2)]


def test_a_row_in_words(history: History) -> None:
    assert history.sends.operation(0) == {
        "operation": "send",
        "producer": 2,
        "sequence": 0,
        "partition": 1,
        "invoked_ns": 10,
        "ended_ns": 21,
        "outcome": "ok",
        "offset": 7,
        "acks": -1,
        "timestamp": 5,
        "content": 6,
        "transaction": UNKNOWN,
        "value": value_of(2, 0),
    }
    assert history.transactions.operation(0) == {
        "operation": "transaction",
        "session": 0,
        "began_ns": 52,
        "end_invoked_ns": 53,
        "ended_ns": 54,
        "is_commit": 1,
        "outcome": "ok",
    }
    assert history.sessions.operation(0)["producer_id"] == 9
    assert history.replicas.operation(0) == {
        "operation": "replica-record",
        "broker": 1,
        "partition": 1,
        "offset": 7,
        "value": value_of(2, 0),
    }


def test_a_row_is_called_what_one_of_its_table_is(history: History) -> None:
    assert history.batches.operation(0)["operation"] == "batch"
    assert history.epoch_ends.operation(0)["operation"] == "epoch-end"
    assert history.lookups.operation(0)["operation"] == "lookup"


def test_a_replica_without_records_is_known_to_be_empty(history: History) -> None:
    assert history.logs.broker.tolist() == [1, 2]
    assert history.replicas.broker.tolist() == [1]


def test_a_deletion_is_open_until_its_outcome_is_recorded() -> None:
    builder = HistoryBuilder()
    builder.deleted(builder.delete(1, 40, before=7), 41)
    builder.delete(1, 42, age_ms=8)
    deletions = builder.build().deletions
    assert deletions.outcome.tolist() == [Outcome.OK, Outcome.INFO]
    assert deletions.ended_ns.tolist() == [41, UNKNOWN]
    assert (deletions.before.tolist(), deletions.age_ms.tolist()) == ([7, UNKNOWN], [UNKNOWN, 8])


def test_the_content_of_a_record_is_all_of_it_but_its_value() -> None:
    contents = {
        content_of(*record)
        for record in (
            (b"k", (), 5),
            (None, (), 5),
            (b"", (), 5),
            (b"k", (), 6),
            (b"k", (("a", b"b"),), 5),
            (b"k", (("a", None),), 5),
        )
    }
    assert len(contents) == 6
    assert min(contents) >= 0
    assert max(contents) < 1 << 63
    assert content_of(b"k", [("a", b"b")], 5) in contents


def test_a_builder_goes_on_after_it_was_asked() -> None:
    builder = HistoryBuilder()
    builder.assign(1, 0, at_ns=1)
    before = builder.build()
    builder.assign(2, 0, at_ns=2)
    assert (len(before.assignments), len(builder.build().assignments)) == (1, 2)


def test_a_saved_history_is_loaded_as_it_was(history: History) -> None:
    file = io.BytesIO()
    history.save(file)
    file.seek(0)
    loaded = History.load(file)
    for name in History.__slots__:
        before, after = getattr(history, name), getattr(loaded, name)
        assert len(before), f"{name} has no row"
        for column in type(before).__slots__:
            assert getattr(after, column).dtype == np.int64
            assert getattr(after, column).tolist() == getattr(before, column).tolist()


def test_a_file_that_is_no_history_is_refused_in_a_sentence() -> None:
    other, single = io.BytesIO(), io.BytesIO()
    np.savez(other, column=np.arange(3))
    np.save(single, np.arange(3))
    for content in (b"", b"not a history", b"PK\x03\x04 torn", other.getvalue(), single.getvalue()):
        with pytest.raises(NotAHistory, match="This is not a history of this version"):
            History.load(io.BytesIO(content))
