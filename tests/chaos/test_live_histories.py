"""Conversion of live clients' rows to a history: complete, and with the clients' own duplicates set apart."""

from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError

from cordwood.chaos.checks import check, count_by_kind
from cordwood.chaos.history import UNKNOWN, Outcome, value_of
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.live.client_rows import (
    POLLS,
    SENDS,
    TRANSACTIONS,
    PollKind,
    PollRow,
    RowArray,
    SendKind,
    SendRow,
    Tail,
    TransactionKind,
    TransactionRow,
    pack_poll,
)
from cordwood.chaos.live.decisions import Asked, MarkerOnDisk
from cordwood.chaos.live.histories import (
    RawRecord,
    RawReplica,
    add_commits,
    add_polls,
    add_replicas,
    add_sends,
    add_transactions,
    asked_of,
    decisions_in,
    differing,
    entries_of,
    error_count,
    given_up,
    replicas_on,
    reported_errors,
    sent_again,
    transactions_by_value,
    unread,
)
from cordwood.chaos.live.load_clients import LaterCommit, ends_read
from cordwood.chaos.transfers import ReadEntry, TransferEntry
from cordwood.chaos.workload import encode as payload_of
from cordwood.storage.records import Record, encode

TOPIC_ID = "3c1f6f0e-8a5b-4a34-9a53-0d0f9b3f7a11"
FIRST_EPOCH, SECOND_EPOCH = (1, 0), (1, 1)


def sends(*rows: SendRow) -> RowArray:
    return np.array(list(rows), dtype=SENDS)


def polls(*rows: PollRow) -> RowArray:
    return np.array(list(rows), dtype=POLLS)


def acknowledged(sequence: int, offset: int) -> list[SendRow]:
    return [
        SendRow(SendKind.INVOKED, sequence, 0, -1, 0, sequence, sequence),
        SendRow(SendKind.ACKNOWLEDGED, sequence, 0, offset, 0, sequence, sequence + 1),
    ]


def polled(offset: int, value: int) -> PollRow:
    return PollRow(PollKind.POLLED, 0, offset, value, 1, 10 + offset)


def replica(*records: RawRecord, log_start: int = 0) -> RawReplica:
    return RawReplica(log_start, records[-1].offset + 1 if records else log_start, records)


def batch(offset: int, value: int) -> bytes:
    return encode([Record(offset, 0, b"key", payload_of(value))], base_offset=offset)


def anomalies(history: HistoryBuilder) -> dict[str, int]:
    return count_by_kind(check(history.build()))


def test_what_was_acknowledged_and_read_is_no_anomaly() -> None:
    history = HistoryBuilder()
    add_sends(history, [sends(*acknowledged(0, 0), *acknowledged(1, 1))])
    add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0), polled(1, 1))], frozenset())
    assert anomalies(history) == {}


def test_a_record_with_another_content_than_it_was_sent_with_is_found() -> None:
    history = HistoryBuilder()
    sent, answered = acknowledged(0, 0)
    add_sends(history, [sends(sent._replace(content=5), answered)])
    rows = [PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0)._replace(content=5)]
    add_polls(history, [polls(*rows), polls(*rows[:1], polled(0, 0)._replace(content=6))], frozenset())
    assert anomalies(history) == {"altered-read": 1}


def test_what_no_consumer_was_given_is_found() -> None:
    history = HistoryBuilder()
    add_sends(history, [sends(*acknowledged(0, 0), *acknowledged(1, 1))])
    add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0))], frozenset())
    assert anomalies(history) == {"unseen": 1}


def test_only_a_send_that_no_request_can_have_written_was_refused() -> None:
    history = HistoryBuilder()
    errors = (KafkaError.INVALID_RECORD, KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._QUEUE_FULL)
    for producer, error in enumerate(errors):
        rows = [SendRow(kind, 0, 0, -1, error, 0, 1) for kind in (SendKind.INVOKED, SendKind.GIVEN_UP)]
        add_sends(history, [sends()] * producer + [sends(*rows)])
    assert history.build().sends.outcome.tolist() == [Outcome.FAIL, Outcome.INFO, Outcome.INFO, Outcome.FAIL]


def test_copies_are_their_clients_own_only_in_another_epoch() -> None:
    in_two = [RawRecord(0, 7, FIRST_EPOCH), RawRecord(1, 8, FIRST_EPOCH), RawRecord(2, 7, SECOND_EPOCH)]
    in_one = [RawRecord(0, 7, FIRST_EPOCH), RawRecord(1, 7, FIRST_EPOCH)]
    assert sent_again({(1, 0): replica(*in_two), (2, 0): replica(*in_two)}, 1) == {(0, 0)}
    assert sent_again({(1, 0): replica(*in_one), (2, 0): replica(*in_one)}, 1) == frozenset()


def test_a_copy_of_the_clients_own_is_no_duplicate_and_one_of_ours_is() -> None:
    for producer, expected in ((SECOND_EPOCH, {}), (FIRST_EPOCH, {"duplicate"})):
        records = [RawRecord(0, 0, FIRST_EPOCH), RawRecord(1, 0, producer)]
        replicas = {(1, 0): replica(*records)}
        again = sent_again(replicas, 1)
        history = HistoryBuilder()
        add_sends(history, [sends(*acknowledged(0, 1))])
        add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0), polled(1, 0))], again)
        add_replicas(history, replicas, again)
        assert set(expected) <= anomalies(history).keys()
        assert bool(expected) == bool(anomalies(history))


def test_a_replica_begins_with_its_oldest_segment_and_not_with_the_first_record_that_is_left(tmp_path: Path) -> None:
    for broker, batches in ((1, (batch(40, 0), batch(41, 1))), (2, (batch(41, 1),))):
        directory = tmp_path / str(broker) / "topics" / TOPIC_ID / "0"
        directory.mkdir(parents=True)
        (directory / f"{40:020}.log").write_bytes(b"".join(batches))
    replicas = replicas_on({broker: tmp_path / str(broker) for broker in (1, 2)}, TOPIC_ID)
    assert [(held.log_start, held.log_end, len(held.records)) for held in replicas.values()] == [
        (40, 42, 2),
        (40, 42, 1),
    ]
    history = HistoryBuilder()
    add_sends(history, [sends(*acknowledged(0, 40), *acknowledged(1, 41))])
    add_replicas(history, replicas, frozenset())
    assert {"lost-write", "replica-divergence"} <= anomalies(history).keys()


def test_only_partitions_whose_records_differ_are_differing() -> None:
    first, second, third = (RawRecord(offset, offset + 7, FIRST_EPOCH) for offset in range(3))
    changed = RawRecord(2, 99, FIRST_EPOCH)
    alike = {(1, 0): replica(first, second, third), (2, 0): replica(second, third, log_start=1)}
    assert differing(alike) == frozenset()
    assert differing({**alike, (1, 1): replica(second, third), (2, 1): replica(second, changed)}) == {1}
    assert differing({**alike, (1, 2): replica(first, second, third), (2, 2): replica(first, third)}) == {2}


def test_a_commit_that_goes_back_within_an_assignment_is_found() -> None:
    def committed(offset: int, assignment: int) -> PollRow:
        return PollRow(PollKind.COMMITTED, 0, offset, -1, assignment, 5)

    def assigned(number: int, at_ns: int) -> PollRow:
        return PollRow(PollKind.ASSIGNED, 0, -1, -1, number, at_ns)

    back = polls(assigned(1, 1), committed(9, 1), committed(4, 1))
    handed_over = [polls(assigned(1, 1), committed(9, 1)), polls(assigned(1, 2), committed(4, 1))]
    for members, expected in (([back], {"group-regress": 1}), (handed_over, {})):
        history = HistoryBuilder()
        add_commits(history, members)
        assert anomalies(history) == expected


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (KafkaError._BAD_MSG, ["served-damage"]),
        (KafkaError._LOG_TRUNCATION, ["watermark-regress"]),
        (KafkaError._AUTO_OFFSET_RESET, ["watermark-regress"]),
        (KafkaError.OFFSET_OUT_OF_RANGE, ["watermark-regress"]),
        (KafkaError._TRANSPORT, []),
    ],
)
def test_an_error_that_no_reader_may_get_is_an_anomaly_and_any_is_counted(error: int, kinds: list[str]) -> None:
    rows = polls(polled(0, 0), PollRow(PollKind.REPORTED_ERROR, -1, -1, error, 1, 11))
    assert [anomaly.kind for anomaly in reported_errors([rows])] == kinds
    assert (error_count(rows), error_count(polls(polled(0, 0)))) == (1, 0)


def test_a_send_that_its_producer_gave_up_is_an_anomaly() -> None:
    given = [SendRow(kind, 0, 0, -1, KafkaError._MSG_TIMED_OUT, 0, 1) for kind in (SendKind.INVOKED, SendKind.GIVEN_UP)]
    assert [(anomaly.kind, anomaly.count) for anomaly in given_up([sends(*given)])] == [("failed-send", 1)]
    assert list(given_up([sends(*acknowledged(0, 0))])) == []


def test_a_record_that_only_a_consumer_by_assignment_polled_is_unread_by_the_group() -> None:
    all_of_it, part = polls(polled(0, 0), polled(1, 1), polled(1, 1)), polls(polled(1, 1))
    assert (unread(of=[all_of_it], by=[part]), unread(of=[all_of_it], by=[part, all_of_it])) == (1, 0)


def test_rows_are_followed_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    tail, first, second = Tail(path, POLLS), pack_poll(*polled(0, 0)), pack_poll(*polled(1, 1))
    assert len(tail.new_rows()) == 0
    path.write_bytes(first + second[:7])
    assert tail.new_rows().tolist() == [tuple(polled(0, 0))]
    path.write_bytes(first + second)
    assert tail.new_rows().tolist() == [tuple(polled(1, 1))]


CLIENT, ORDERS_FROM = 4, 6
"""A transactional client's number as a producer, and the first partition of orders."""


def client(*rows: tuple[TransactionKind, int, int, int]) -> RowArray:
    """Return rows of a transactional client, one nanosecond after the other."""
    numbered = (TransactionRow(*row, at_ns) for at_ns, row in enumerate(rows, start=100))
    return np.array(list(numbered), dtype=TRANSACTIONS)


def began(timeout_ms: int = 10_000, offset: int = 0) -> list[tuple[TransactionKind, int, int, int]]:
    return [
        (TransactionKind.INITIALIZING, -1, timeout_ms, -1),
        (TransactionKind.INITIALIZED, -1, 9, 1),
        (TransactionKind.OFFSET_READ, -1, offset, 102),
    ]


def transaction(number: int, *kinds: TransactionKind) -> list[tuple[TransactionKind, int, int, int]]:
    return [
        (TransactionKind.BEGUN, number, -1, -1),
        (TransactionKind.OFFSET_SENT, number, number, number + 1),
        *((kind, number, -1, -1) for kind in kinds),
    ]


def ended(number: int, outcome: Outcome) -> tuple[TransactionKind, int, int, int]:
    return (TransactionKind.ENDED, number, outcome, -1)


COMMITTING, ABORTING = TransactionKind.COMMITTING, TransactionKind.ABORTING


def test_a_clients_transactions_go_into_the_history_with_their_sessions_offsets_and_sends() -> None:
    rows = client(
        *began(),
        *transaction(0, COMMITTING),
        ended(0, Outcome.OK),
        *transaction(1, COMMITTING, ABORTING),
        ended(1, Outcome.FAIL),
        *began(offset=1),
        *transaction(2),
    )
    builder = HistoryBuilder()
    added = add_transactions(builder, {CLIENT: rows}, ORDERS_FROM)
    sent = [send._replace(transaction=2) for send in acknowledged(0, 5)]
    add_sends(builder, [sends()] * CLIENT + [sends(*sent)], added)
    history = builder.build()
    assert history.transactions.session.tolist() == [0, 0, 1]
    assert history.transactions.is_commit.tolist() == [1, 1, UNKNOWN]
    assert history.transactions.outcome.tolist() == [Outcome.OK, Outcome.FAIL, Outcome.INFO]
    assert (history.sessions.producer_id.tolist(), history.sessions.timeout_ms.tolist()) == ([9, 9], [10_000] * 2)
    assert history.offset_reads.offset.tolist() == [0, 1]
    assert history.transaction_offsets.end.tolist() == [1, 2, 3]
    assert set(history.transaction_offsets.partition.tolist()) == {ORDERS_FROM}
    assert history.sends.transaction.tolist() == [2]


def test_a_client_knows_what_it_asked_for_first_and_the_answer() -> None:
    rows = client(
        *transaction(0, ABORTING), ended(0, Outcome.OK), *transaction(1, COMMITTING, ABORTING), *transaction(2)
    )
    assert asked_of({CLIENT: rows}) == {
        (CLIENT, 0): Asked(False, Outcome.OK),
        (CLIENT, 1): Asked(True, Outcome.INFO),
    }
    sent = [send._replace(transaction=7) for send in acknowledged(3, 5)]
    assert transactions_by_value({CLIENT: sends(*sent)}) == {value_of(CLIENT, 3): (CLIENT, 7)}


def test_entries_of_transfers_are_read_back_from_their_rows() -> None:
    row = PollRow(PollKind.TRANSFER, 17, -250, value_of(CLIENT, 8), 3, 50, content=-40)
    assert list(entries_of(polls(polled(0, 0), row))) == [ReadEntry(CLIENT, 3, TransferEntry(8, 17, -40, -250))]


def test_decisions_are_taken_from_one_replica_of_each_partition() -> None:
    decided = [MarkerOnDisk(partition, (1,), True, 0) for partition in range(2)]
    replicas = {
        (broker, partition): RawReplica(0, 1, [], decided[partition : partition + 1])
        for broker in (1, 2)
        for partition in range(2)
    }
    assert list(decisions_in(replicas)) == decided


@pytest.mark.parametrize(
    ("moment_ns", "rows", "expected"),
    [
        (100, [*transaction(0, COMMITTING), ended(0, Outcome.OK)], 103),
        (101, [*transaction(0, COMMITTING), ended(0, Outcome.OK)], None),
        (100, [*transaction(0, ABORTING), ended(0, Outcome.OK)], None),
        (100, [*transaction(0, COMMITTING, ABORTING), ended(0, Outcome.FAIL)], None),
        (101, [*transaction(0, COMMITTING), *transaction(1, COMMITTING), ended(1, Outcome.OK)], 106),
    ],
    ids=["later", "earlier", "aborted", "failed", "the next one"],
)
def test_the_first_later_commit_is_of_a_transaction_that_began_after_the_moment(
    moment_ns: int, rows: list[tuple[TransactionKind, int, int, int]], expected: int | None
) -> None:
    commit, whole = LaterCommit(moment_ns), client(*rows)
    # The rows come in two pieces, as from a file that grows.
    first, second = commit.take(whole[:2]), commit.take(whole[2:])
    assert (first, second) == (None, expected)


def test_markers_after_the_last_record_count_as_read() -> None:
    end = PollRow(PollKind.REACHED_END, 0, 3, -1, 1, 20)
    assert ends_read(polls(polled(0, 0), polled(1, 1))) == {0: 2}
    assert ends_read(polls(polled(0, 0), polled(1, 1), end)) == {0: 3}
    assert ends_read(polls(polled(0, 0), end, polled(3, 2))) == {0: 4}
    assert ends_read(polls(end._replace(kind=PollKind.WATERMARK))) == {}
