"""The records of one share partition: acknowledgements over a moved start, a lowered limit, and what is written."""

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.share_partition import LogBatch, SharePartition, ShareRules, StateWrite
from cordwood.cluster.share.states import AcknowledgementBatch

ACCEPT, RELEASE, RENEW = 1, 2, 4


def acquire(state: SharePartition, member: str, start: int, end: int) -> list[tuple[int, int, int]]:
    acquired = state.acquire(member, start, [LogBatch(start, end)], end - start, 0.0, batch_size=1000)
    return [tuple(one) for one in acquired]


def acknowledge(state: SharePartition, member: str, start: int, end: int, kind: int = ACCEPT) -> None:
    state.acknowledge(member, [AcknowledgementBatch(start, end, (kind,))], 0.0)


def written(state: SharePartition) -> StateWrite:
    """Write what waits to be written, and store it."""
    write = state.begin_write()
    assert write is not None
    state.committed()
    return write


def test_a_batch_across_the_start_offset_acknowledges_only_what_its_member_has() -> None:
    state = SharePartition(0)
    acquire(state, "a", 0, 10)
    state.move_log_start(5)
    with pytest.raises(Refused) as refused:
        acknowledge(state, "b", 3, 8)
    assert refused.value.code is ErrorCode.invalid_record_state
    acknowledge(state, "a", 3, 8)
    assert written(state).start_offset == 8


def test_records_that_were_delivered_as_often_as_a_lowered_limit_are_not_delivered_again() -> None:
    state = SharePartition(0, (), ShareRules(delivery_count_limit=5))
    for count in (1, 2):
        assert acquire(state, "a", 0, 3) == [(0, 3, count)]
        acknowledge(state, "a", 0, 3, RELEASE)
        written(state)
    state.rules = ShareRules(delivery_count_limit=2)
    assert acquire(state, "a", 0, 4) == [(3, 4, 1)]
    written(state)
    assert state.start_offset == 3, "the records are archived"


def test_a_write_counts_the_records_that_are_done_once_it_is_stored() -> None:
    state = SharePartition(0)
    acquire(state, "a", 0, 10)
    acknowledge(state, "a", 4, 6)
    assert written(state).delivery_complete_count == 2
    acknowledge(state, "a", 8, 9)
    assert written(state).delivery_complete_count == 3
    acknowledge(state, "a", 0, 1)
    assert written(state)[0:3:2] == (1, 3)
    acknowledge(state, "a", 1, 4)
    assert written(state)[0:3:2] == (6, 1), "the start offset has passed the others"


def test_a_group_has_so_many_records_in_flight_and_no_more() -> None:
    state = SharePartition(0, (), ShareRules(records_max=10))
    assert acquire(state, "a", 0, 9) == [(0, 9, 1)]
    assert acquire(state, "b", 9, 10) == [(9, 10, 1)]
    assert (state.next_fetch_offset(), acquire(state, "c", 10, 11)) == (None, [])


def test_a_renewal_never_shortens_a_lock() -> None:
    state = SharePartition(0, (), ShareRules(lock_s=10.0))
    acquire(state, "a", 0, 3)
    state.rules = ShareRules(lock_s=1.0)
    acknowledge(state, "a", 0, 3, RENEW)
    assert state.next_deadline() == 10.0


def pass_over(state: SharePartition, start: int, end: int) -> None:
    """Pass over a control batch: nothing of it is delivered."""
    assert state.acquire("a", start, [LogBatch(start, end, is_passed_over=True)], 1, 0.0) == []


def test_a_start_offset_that_has_passed_over_markers_is_written() -> None:
    """Otherwise the next leader, and DescribeShareGroupOffsets, find the former one for as long as nothing happens."""
    state = SharePartition(7)
    assert not state.must_write
    pass_over(state, 7, 8)
    assert written(state) == StateWrite(8, (), 0)
    assert not state.must_write


def test_markers_among_records_cost_no_write_of_their_own() -> None:
    state = SharePartition(0)
    acquire(state, "a", 0, 2)
    pass_over(state, 2, 3)
    assert not state.must_write, "the start offset waits for the records"
    acknowledge(state, "a", 0, 2)
    assert written(state).start_offset == 3
    assert not state.must_write


def test_markers_that_are_passed_over_during_a_write_are_in_the_next_one() -> None:
    state = SharePartition(0)
    acquire(state, "a", 0, 2)
    acknowledge(state, "a", 0, 2)
    write = state.begin_write()
    assert write is not None
    pass_over(state, 2, 3)
    state.committed()
    assert (write.start_offset, written(state).start_offset) == (2, 3)


def test_a_start_offset_whose_write_has_failed_is_written_again_at_the_next_look_at_locks() -> None:
    state = SharePartition(0)
    pass_over(state, 0, 1)
    assert state.begin_write() is not None
    state.failed()
    assert not state.must_write, "not at once: the share coordinator may be away"
    state.expire(1.0)
    assert written(state).start_offset == 1


def test_a_start_offset_that_the_log_start_has_passed_is_written() -> None:
    """Otherwise a group at the end of a log whose records are deleted shows a lag of records that no one can read."""
    state = SharePartition(0)
    state.move_log_start(5)
    assert written(state) == StateWrite(5, (), 0)
    assert not state.must_write


def test_records_whose_archival_could_not_be_stored_are_found_again() -> None:
    state = SharePartition(0)
    acquire(state, "a", 0, 3)
    acknowledge(state, "a", 0, 3, RELEASE)
    written(state)
    state.rules = ShareRules(delivery_count_limit=1)
    assert acquire(state, "a", 0, 4) == [(3, 4, 1)]
    assert state.next_fetch_offset() == 4, "the others are being archived"
    assert state.begin_write() is not None
    state.failed()
    assert state.next_fetch_offset() == 0
