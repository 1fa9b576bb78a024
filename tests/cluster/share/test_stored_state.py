"""The stored state of a share partition: changes that it takes, epochs that fence, and writes that arrive late."""

import time
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.state import SharePartitionState, merged
from cordwood.cluster.share.states import RecordState, StateBatch

FREE, DONE, DEAD = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
BEGUN = SharePartitionState(state_epoch=2, leader_epoch=3, start_offset=10)


def batch(start: int, end: int, state: RecordState = DONE, count: int = 1) -> StateBatch:
    return StateBatch(start, end, state, count)


def refusal_of(change: "pytest.ExceptionInfo[Refused]") -> ErrorCode:
    return change.value.code


def test_changes_are_merged_and_what_is_done_is_dropped() -> None:
    state = BEGUN.written(2, 3, 10, [batch(12, 14)], 2).written(2, 3, 13, [batch(14, 15)], 2)
    assert (state.start_offset, state.batches, state.updates) == (13, (batch(13, 15),), 2)


def test_a_write_that_arrives_late_takes_nothing_back() -> None:
    released = batch(12, 13, FREE, 1)
    state = BEGUN.written(2, 3, 12, [batch(12, 13)], 1).written(2, 3, 10, [released], 0)
    assert (state.start_offset, state.batches) == (12, (batch(12, 13),))
    again = state.written(2, 3, 12, [batch(12, 13, FREE, 2)], 0)
    assert again.batches == (batch(12, 13, FREE, 2),), "it was delivered once more since"


def test_former_leaders_and_former_states_are_fenced() -> None:
    read = BEGUN.read_by(5)
    assert read.leader_epoch == 5
    assert read.read_by(5) is read, "nothing is to be written"
    for change, code in (
        (lambda: read.read_by(4), ErrorCode.fenced_leader_epoch),
        (lambda: read.written(2, 4, 10, [], 0), ErrorCode.fenced_leader_epoch),
        (lambda: read.written(1, 5, 10, [], 0), ErrorCode.fenced_state_epoch),
        (lambda: read.initialized(1, 0, 0), ErrorCode.fenced_state_epoch),
    ):
        with pytest.raises(Refused) as refused:
            change()
        assert refusal_of(refused) is code


def test_an_initialization_without_an_offset_keeps_what_is_known() -> None:
    state = BEGUN.written(2, 3, 10, [batch(12, 14)], 2)
    kept = state.initialized(7, -1, 0)
    assert (kept.state_epoch, kept.start_offset, kept.batches) == (7, 10, state.batches)
    moved = state.initialized(7, 4, 0)
    assert (moved.state_epoch, moved.start_offset, moved.batches, moved.leader_epoch) == (7, 4, (), 3)
    assert moved.snapshot_epoch > state.snapshot_epoch, "earlier updates do not count"
    assert moved.initialized(7, 5, 0).start_offset == 5, "the answer to the first request may have been lost"


def test_what_was_stored_before_a_failover_is_stored_after_the_next_one() -> None:
    snapshot = BEGUN.snapshot()
    update = snapshot.written(2, 3, 10, [batch(12, 14)], 2)
    restored = snapshot.restored(update).written(2, 3, 10, [batch(16, 17)], 3)
    assert snapshot.restored(restored).batches == (batch(12, 14), batch(16, 17))


def test_overlapping_batches() -> None:
    known = [batch(0, 10, FREE, 1), batch(20, 30, DEAD, 5)]
    assert merged(known, [batch(4, 6, DONE, 1), batch(8, 22, FREE, 2)], 2) == (
        batch(2, 4, FREE, 1),
        batch(4, 6, DONE, 1),
        batch(6, 8, FREE, 1),
        batch(8, 20, FREE, 2),
        batch(20, 30, DEAD, 5),
    )
    assert merged(known, [], 100) == ()


def test_merged_batches_have_for_each_record_the_state_of_most_deliveries() -> None:
    rng = Random(1)
    for _ in range(2000):
        known = merged((), any_batches(rng), rng.randrange(6))
        new, start = any_batches(rng), rng.randrange(25)
        best: dict[int, tuple[int, int]] = {}
        for one in (*known, *new):
            for offset in range(max(one.start, start), one.end):
                best[offset] = max(best.get(offset, (0, 0)), (one.delivery_count, one.state))
        result = merged(known, new, start)
        assert {
            offset: (one.delivery_count, one.state) for one in result for offset in range(one.start, one.end)
        } == best
        assert all(one.end <= other.start for one, other in pairwise(result)), "in order"
        assert not any(one.end == other.start and one[2:] == other[2:] for one, other in pairwise(result)), "joined"


def any_batches(rng: Random) -> list[StateBatch]:
    starts = (rng.randrange(30) for _ in range(rng.randrange(8)))
    return [
        batch(start, start + rng.randint(1, 8), rng.choice((FREE, DONE, DEAD)), rng.randint(1, 2)) for start in starts
    ]


def test_one_acknowledgement_costs_little_in_a_state_of_many_batches() -> None:
    known = tuple(batch(2 * number, 2 * number + 1) for number in range(100_000))
    state = replace(BEGUN, start_offset=0, batches=known, changed=known)
    begin = time.process_time()
    written = state.written(2, 3, 0, [batch(501, 502)], 0)
    assert time.process_time() - begin < 0.05, "a merge of all takes more than half a second"
    assert len(written.batches) == len(known) - 1


def test_an_update_restores_the_epoch_that_fences_former_leaders() -> None:
    update = replace(BEGUN.written(2, 5, 10, [batch(12, 14)], 2), batches=())
    restored = BEGUN.restored(update)
    assert restored.leader_epoch == 5
    with pytest.raises(Refused) as refused:
        restored.written(2, 4, 10, [], 0)
    assert refusal_of(refused) is ErrorCode.fenced_leader_epoch
    assert BEGUN.restored(replace(update, leader_epoch=1)).leader_epoch == 3, "an epoch does not go back"
