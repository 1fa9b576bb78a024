"""From the rows of live clients to a history: nothing is lost on the way, and a client's own copies are told apart."""

import numpy as np

from cordwood.chaos.checks import check, count_by_kind
from cordwood.chaos.history import HistoryBuilder
from cordwood.chaos.live.client_rows import POLLS, SENDS, PollKind, PollRow, RowArray, SendKind, SendRow
from cordwood.chaos.live.histories import RawRecord, add_commits, add_polls, add_replicas, add_sends, sent_again

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


def anomalies(history: HistoryBuilder) -> dict[str, int]:
    return count_by_kind(check(history.build()))


def test_what_was_acknowledged_and_read_is_no_anomaly() -> None:
    history = HistoryBuilder()
    add_sends(history, [sends(*acknowledged(0, 0), *acknowledged(1, 1))])
    add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0), polled(1, 1))], frozenset())
    assert anomalies(history) == {}


def test_what_no_consumer_was_given_is_found() -> None:
    history = HistoryBuilder()
    add_sends(history, [sends(*acknowledged(0, 0), *acknowledged(1, 1))])
    add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0))], frozenset())
    assert anomalies(history) == {"unseen": 1}


def test_copies_are_their_clients_own_only_in_another_epoch() -> None:
    in_two = [RawRecord(0, 7, FIRST_EPOCH), RawRecord(1, 8, FIRST_EPOCH), RawRecord(2, 7, SECOND_EPOCH)]
    in_one = [RawRecord(0, 7, FIRST_EPOCH), RawRecord(1, 7, FIRST_EPOCH)]
    assert sent_again({(1, 0): in_two, (2, 0): in_two}) == {(0, 0)}
    assert sent_again({(1, 0): in_one, (2, 0): in_one}) == frozenset()


def test_a_copy_of_the_clients_own_is_no_duplicate_and_one_of_ours_is() -> None:
    for producer, expected in ((SECOND_EPOCH, {}), (FIRST_EPOCH, {"duplicate"})):
        records = [RawRecord(0, 0, FIRST_EPOCH), RawRecord(1, 0, producer)]
        again = sent_again({(1, 0): records})
        history = HistoryBuilder()
        add_sends(history, [sends(*acknowledged(0, 1))])
        add_polls(history, [polls(PollRow(PollKind.ASSIGNED, 0, -1, -1, 1, 0), polled(0, 0), polled(1, 0))], again)
        add_replicas(history, {(1, 0): records}, again)
        assert set(expected) <= anomalies(history).keys()
        assert bool(expected) == bool(anomalies(history))


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
