"""Idempotent producers: sequence numbers without gap or duplicate, epoch fencing and expiry (rule 9)."""

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.storage.batch import BatchHeader, check
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.errors import OutOfOrderSequence, StaleProducerEpoch
from cordwood.storage.producers import (
    BATCHES_REMEMBERED,
    FIRST_OF_ONE_BATCH,
    ONE_BATCH_PRODUCERS_MAX,
    PRODUCERS_MAX,
    SEQUENCE_MAX,
    Producers,
)
from cordwood.storage.records import Record, encode

PRODUCER = 7


class History:
    """One producer's batches, checked and recorded as `Log.append` does."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.log_end = 0

    def sends(self, sequence: int, count: int = 1, *, epoch: int = 0, now: int = 0) -> tuple[int, bool]:
        """Send a batch. Return the base offset of the answer, and whether the batch is a duplicate."""
        header = numbered(sequence, count, epoch)
        known = self.producers.check(header)
        if known is not None:
            return known.base_offset, True
        base, self.log_end = self.log_end, self.log_end + count
        self.producers.appended(header, base, self.log_end, now)
        return base, False

    def restarts(self) -> "History":
        self.producers = Producers.decode(self.producers.snapshot(self.log_end).encode())
        return self


def numbered(sequence: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    records = [Record(0, 0, None, b"")] * count
    return check(encode(records, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence))


@pytest.fixture
def history() -> History:
    return History()


def test_batches_follow_on(history: History) -> None:
    assert history.sends(0, 3) == (0, False)
    assert history.sends(3) == (3, False)
    assert history.sends(4, 2) == (4, False)


def test_an_open_transaction_of_one_batch_takes_little_memory() -> None:
    producers, count = Producers(), 1000
    headers = [numbered(0)._replace(producer_id=PRODUCER + number) for number in range(count)]
    tracemalloc.start()
    try:
        for number, header in enumerate(headers):
            producers.appended_in_transaction(header, 1000 + number, 1001 + number, 1_700_000_000_000 + number)
        assert tracemalloc.get_traced_memory()[0] / count < 450
    finally:
        tracemalloc.stop()


def marker_of(header: BatchHeader, producers: Producers, offset: int) -> None:
    producers.ended(header, offset, EndTransactionMarker(is_commit=True, coordinator_epoch=0), 0)


@pytest.mark.parametrize("then", ["batches", "transaction", "marker", "marker and batches", "epoch", "expiry"])
@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction", "open transaction"])
@pytest.mark.parametrize("is_flushed", [False, True], ids=["marker is not flushed", "all is flushed"])
def test_a_snapshot_stays_as_it_was_while_the_log_is_appended_to(then: str, is_open: bool, is_flushed: bool) -> None:
    history = History()
    history.sends(0)
    marker_of(numbered(0), history.producers, 1)
    history.producers.appended(numbered(1), 2, 3, 0)
    if is_open:
        history.producers.appended_in_transaction(numbered(2), 3, 4, 0)
    else:
        history.producers.appended(numbered(2), 3, 4, 0)
    producers = history.producers
    if not is_flushed:
        # The snapshot has the state before it.
        marker_of(numbered(0), producers, 4)
    snapshot = producers.snapshot(4)
    before = snapshot.encode()
    sequence, offset = 3, 5
    if then == "expiry":
        producers.expire(1 << 40, 0)
    if then.startswith("marker"):
        marker_of(numbered(0), producers, offset)
        offset += 1
    if then == "epoch":
        producers.appended(numbered(0, epoch=1), offset, offset + 1, 9)
    if then == "transaction":
        producers.appended_in_transaction(numbered(sequence), offset, offset + 1, 9)
    if then.endswith("batches"):
        for number in range(2 * BATCHES_REMEMBERED):
            producers.appended(numbered(sequence + number), offset + number, offset + number + 1, 9)
    assert snapshot.encode() == before


def test_entries_change_in_place_once_a_snapshot_is_encoded(history: History) -> None:
    history.sends(0)
    ((_, entry),) = history.producers
    history.producers.snapshot(1)
    history.producers.encoded()
    history.sends(1)
    assert dict(history.producers) == {PRODUCER: entry}
    assert entry.end == 2


def test_a_snapshot_takes_as_many_calls_for_many_producers_as_for_few() -> None:
    def calls_of_snapshot(count: int) -> int:
        producers, calls = Producers(), 0
        for number in range(count):
            producers.appended(numbered(0)._replace(producer_id=number), number, number + 1, 0)

        def count_calls(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            producers.snapshot(count)
        finally:
            sys.setprofile(None)
        return calls

    assert calls_of_snapshot(2_000) == calls_of_snapshot(1) < 20


def test_a_repeated_batch_gets_the_answer_it_had(history: History) -> None:
    history.sends(0, 3)
    history.sends(3)
    assert history.sends(3) == (3, True)
    assert history.sends(0, 3) == (0, True)
    assert history.sends(4) == (4, False)


def test_the_last_batches_are_known_again(history: History) -> None:
    for sequence in range(2 + BATCHES_REMEMBERED):
        history.sends(sequence)
    for sequence in range(2, 2 + BATCHES_REMEMBERED):
        assert history.sends(sequence) == (sequence, True)
    for sequence in range(2):
        with pytest.raises(OutOfOrderSequence):
            history.sends(sequence)


def test_a_gap_is_refused(history: History) -> None:
    history.sends(0, 3)
    with pytest.raises(OutOfOrderSequence):
        history.sends(4)


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 2), (0, 4), (2, 2)])
def test_a_repetition_cut_differently_is_refused(history: History, sequence: int, count: int) -> None:
    history.sends(0, 3)
    with pytest.raises(OutOfOrderSequence):
        history.sends(sequence, count)


def test_a_new_epoch_begins_at_zero(history: History) -> None:
    history.sends(0, 3)
    with pytest.raises(OutOfOrderSequence):
        history.sends(3, epoch=1)
    assert history.sends(0, epoch=1) == (3, False)
    assert history.sends(1, epoch=1) == (4, False)


def test_an_old_epoch_is_fenced(history: History) -> None:
    history.sends(0, 3)
    history.sends(0, epoch=1)
    with pytest.raises(StaleProducerEpoch):
        history.sends(3)
    with pytest.raises(StaleProducerEpoch):
        history.sends(0, 3)


def test_the_sequence_wraps_to_zero(history: History) -> None:
    history.sends(SEQUENCE_MAX - 1)
    assert history.sends(SEQUENCE_MAX) == (1, False)
    assert history.sends(0) == (2, False)
    assert history.sends(SEQUENCE_MAX) == (1, True)


def test_a_batch_may_contain_the_wrap(history: History) -> None:
    history.sends(SEQUENCE_MAX, 3)
    assert history.sends(SEQUENCE_MAX, 3) == (0, True)
    with pytest.raises(OutOfOrderSequence):
        history.sends(1)
    assert history.sends(2) == (3, False)


def test_an_unknown_producer_may_begin_anywhere(history: History) -> None:
    assert history.sends(1000, 2) == (0, False)
    with pytest.raises(OutOfOrderSequence):
        history.sends(0)


def test_what_is_known_survives_a_restart(history: History) -> None:
    for sequence in range(2 + BATCHES_REMEMBERED):
        history.sends(sequence)
    history.restarts()
    assert history.sends(3) == (3, True)
    with pytest.raises(OutOfOrderSequence):
        history.sends(13)
    assert history.sends(12) == (12, False)
    with pytest.raises(OutOfOrderSequence):
        history.sends(2)


def test_a_truncation_leaves_what_lies_below_it(history: History) -> None:
    for sequence in range(12):
        history.sends(sequence)
    history.producers.truncate_end(7)
    assert history.sends(6) == (6, True)
    with pytest.raises(OutOfOrderSequence):
        history.sends(8)


def test_a_truncation_that_takes_all_of_a_producer_forgets_it(history: History) -> None:
    history.sends(0)
    history.producers.truncate_end(0)
    assert len(history.producers) == 0


def test_an_epoch_survives_a_restart(history: History) -> None:
    history.sends(0, epoch=3)
    history.restarts()
    with pytest.raises(StaleProducerEpoch):
        history.sends(1, epoch=2)


def test_a_silent_producer_expires(history: History) -> None:
    history.sends(0, now=1000)
    history.producers.expire(now_ms=2000, expiry_ms=1000)
    assert history.sends(0) == (0, True)
    history.restarts().producers.expire(now_ms=2001, expiry_ms=1000)
    assert len(history.producers) == 0
    assert history.sends(50) == (1, False)


def test_a_busy_producer_does_not_expire(history: History) -> None:
    history.sends(0, now=1000)
    history.sends(1, now=1900)
    history.restarts().producers.expire(now_ms=2800, expiry_ms=1000)
    assert history.sends(1) == (1, True)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=30), st.integers(0, SEQUENCE_MAX))
def test_whatever_is_sent_the_log_holds_each_number_once_and_in_order(sent: list[tuple[int, int]], first: int) -> None:
    history = History()
    taken: list[int] = []
    for sequence, count in [(0, 1), *sent]:
        try:
            base, is_known = history.sends((first + sequence) & SEQUENCE_MAX, count)
        except OutOfOrderSequence:
            continue
        numbers = list(range(sequence, sequence + count))
        if is_known:
            assert taken[base : base + count] == numbers
        else:
            taken += numbers
    assert taken == list(range(len(taken)))


def one_batch(number: int) -> BatchHeader:
    """Return the only batch of a producer id that the broker never handed out."""
    return numbered(number)._replace(producer_id=FIRST_OF_ONE_BATCH | number)


def test_producers_of_a_single_batch_are_forgotten_in_the_order_in_which_they_came() -> None:
    history = History()
    history.sends(0)
    for number in range(ONE_BATCH_PRODUCERS_MAX):
        history.producers.appended(one_batch(number), number, number + 1, number)
    history.log_end = ONE_BATCH_PRODUCERS_MAX
    history.restarts()
    assert history.producers.check(one_batch(0)) is not None
    history.producers.appended(one_batch(ONE_BATCH_PRODUCERS_MAX), history.log_end, history.log_end + 1, 0)
    assert history.producers.check(one_batch(0)) is None
    assert history.producers.check(one_batch(1)) is not None
    assert history.sends(0) == (0, True), "a producer that goes on is none of them"
    assert len(history.producers) == ONE_BATCH_PRODUCERS_MAX + 1


def test_a_truncation_makes_room_for_producers_of_a_single_batch() -> None:
    producers = Producers()
    for number in range(ONE_BATCH_PRODUCERS_MAX):
        producers.appended(one_batch(number), number, number + 1, number)
    producers.truncate_end(ONE_BATCH_PRODUCERS_MAX - 1)
    producers.appended(one_batch(ONE_BATCH_PRODUCERS_MAX), ONE_BATCH_PRODUCERS_MAX - 1, ONE_BATCH_PRODUCERS_MAX, 0)
    assert producers.check(one_batch(0)) is not None


def test_so_many_producers_are_remembered_and_the_oldest_are_forgotten_first() -> None:
    producers, batch = Producers(), encode([Record(0, 0, None, b"")], producer_id=0, producer_epoch=0, base_sequence=0)
    header = check(batch)
    for producer_id in range(PRODUCERS_MAX):
        producers.appended(header._replace(producer_id=producer_id), producer_id, producer_id + 1, 0)
    producers.appended(header._replace(producer_id=0, base_sequence=1), PRODUCERS_MAX, PRODUCERS_MAX + 1, 0)
    producers.appended(header._replace(producer_id=PRODUCERS_MAX), PRODUCERS_MAX + 1, PRODUCERS_MAX + 2, 0)
    known = {producer_id for producer_id, _ in producers}
    assert len(known) == PRODUCERS_MAX + 1 - PRODUCERS_MAX // 10
    assert {0, PRODUCERS_MAX} <= known, "the one that has just written, and the one that is new"
    assert not known & set(range(1, PRODUCERS_MAX // 10 + 1))
    assert {known for known, _ in Producers.decode(producers.snapshot(PRODUCERS_MAX + 2).encode())} == known
