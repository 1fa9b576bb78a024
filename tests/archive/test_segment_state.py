"""State objects: what they say about a segment is what the log says."""

import pytest
from log_fixture import SMALL, LogFixture, log_with_transactions

from cordwood.archive.segment_state import (
    DamagedState,
    SegmentState,
    decode,
    encode,
    producers_after,
    rebuilt,
    state_of,
)
from cordwood.storage.producers import Producers


def states_of(log: LogFixture) -> list[SegmentState]:
    states: list[SegmentState] = []
    for segment in log.log.segments[:-1]:
        before = states[-1].producers_encoded if states else None
        states.append(state_of(segment, log.log.epochs, before))
    return states


def test_a_state_is_read_as_it_was_written() -> None:
    for state in states_of(log_with_transactions()):
        assert decode(encode(state)) == state


def test_the_index_covers_the_segment() -> None:
    log = log_with_transactions()
    for segment, state in zip(log.log.segments, states_of(log), strict=False):
        assert state.intervals[0].position == 0
        assert state.intervals[-1].end == segment.size
        assert (state.base_offset, state.end_offset) == (segment.base_offset, segment.end_offset)
        assert state.max_timestamp == max(interval.max_timestamp for interval in state.intervals)


def test_epochs_and_aborted_transactions_are_those_of_the_log() -> None:
    log = log_with_transactions()
    states = states_of(log)
    assert next(state.epochs.latest for state in states) == 0
    assert list(states[-1].epochs) == list(log.log.epochs)
    rows = [row for segment in log.log.segments[:-1] for row in segment.aborted.rows()]
    assert [row for state in states for row in state.aborted] == rows
    assert len(rows) >= 2
    assert [state.undecided for state in states] == [one.aborted.undecided for one in log.log.segments[:-1]]


def known(producers: Producers) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (entry.epoch, tuple(entry.batches), entry.marker_offset, entry.current_transaction_first_offset)
        for producer_id, entry in producers
    }


def test_the_producers_of_the_last_segment_are_those_of_the_log() -> None:
    log = log_with_transactions()
    encoded = None
    for segment in log.log.segments:
        encoded = producers_after(segment, encoded)
    assert encoded is not None
    producers = Producers.decode(encoded)
    assert known(producers) == known(log.log.producers)
    assert producers.transactions.first_undecided(log.end) == log.log.producers.transactions.first_undecided(log.end)


def test_states_do_not_grow_with_the_markers_of_all_segments_before() -> None:
    log = LogFixture(SMALL)
    for number in range(100):
        log.send(number, "a", producer=1, transactional=True)
        log.commit(producer=1)
    states = states_of(log.flush())
    assert len(states) > 5
    assert len({len(state.producers_encoded) for state in states[1:]}) == 1
    assert rebuilt(log.log.segments[-2], states[-2]) == states[-1]


@pytest.mark.parametrize("position", [0, 20, 60, -1])
def test_damage_is_found(position: int) -> None:
    content = bytearray(encode(states_of(log_with_transactions())[1]))
    content[position] ^= 1
    with pytest.raises(DamagedState):
        decode(bytes(content))


@pytest.mark.parametrize("size", [0, 3, 30, 200])
def test_a_cut_object_is_found(size: int) -> None:
    with pytest.raises(DamagedState):
        decode(encode(states_of(log_with_transactions())[1])[:size])
