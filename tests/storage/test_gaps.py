"""Gaps between offsets in a compacted log: appends of a follower, recovery, truncations."""

from dataclasses import replace

import pytest
from compacted_log import compact, nothing, remove_replaced
from log_fixture import ALL_BYTES, SMALL, LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import peek
from cordwood.storage.errors import CorruptBatch, LostTail

MANY = [f"value-{number:02}" for number in range(60)]
STEPS_MAX = 200


def leader() -> LogFixture:
    """Return a log of 60 records whose first segments were compacted."""
    log = LogFixture().append(*MANY).flush().checkpoint()
    remove_replaced(log, compact(log, 0, 2))
    compact(log, 1, 1, nothing)
    return log.checkpoint()


def follower(of: LogFixture) -> LogFixture:
    """Return a log that has taken all batches of the other one, some at a time."""
    log, offset = LogFixture(), 0
    while data := of.read(offset, 300):
        log.take_stamped(data).flush()
        offset = log.end
    return log


def test_a_follower_has_the_gaps_of_its_leader() -> None:
    first = leader()
    second = follower(first)
    assert [(record.offset, record.value) for record in second.records()] == [
        (record.offset, record.value) for record in first.records()
    ]
    assert second.end == first.end


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_a_restart_takes_no_gap_for_a_loss(is_checkpointed: bool, keep: float) -> None:
    log = follower(leader())
    values = log.values()
    if is_checkpointed:
        log.checkpoint()
    log.power_cut(keep=keep).reopen()
    assert (log.damage, log.values(), log.end) == ([], values, 60)
    assert log.append("more").flush().power_cut(keep=keep).reopen().values() == [*values, "more"]


def test_a_segment_without_gaps_has_the_usual_name_again() -> None:
    log = follower(leader())
    log.append(*MANY)
    generations = [segment.generation for segment in log.log.segments]
    assert (generations[0], generations[-1]) == (1, 0)


def test_gaps_that_reach_over_several_segments_are_no_loss() -> None:
    first = leader()
    second = LogFixture(replace(SMALL, segment_bytes=200)).take_stamped(first.read(0, ALL_BYTES)).flush()
    values = second.values()
    assert len(second.bases) > 2
    assert (values, second.reopen().damage, second.values()) == (first.values()[: len(values)], [], values)


def test_a_flipped_bit_of_an_offset_is_no_gap() -> None:
    log = LogFixture().append(*MANY[:5]).flush()
    log.disk.flip(log.path(0), 7 + peek(log.read(0)).size, 1)
    log.reopen()
    assert log.damage


def test_a_flipped_bit_of_the_last_offset_among_gaps_is_no_gap() -> None:
    source = LogFixture().append(*MANY[:7]).flush().checkpoint().append(*MANY)
    compact(source, 0, 1)
    log = LogFixture().take_stamped(source.read(0, 200)).flush()
    last = [position for position, _ in log.log.segments[-1].headers(0, log.log.segments[-1].size)][-1]
    path = log.log.segments[-1].path
    log.disk.flip(path, last + 6, 1)
    log.reopen()
    assert log.damage


def test_a_batch_below_the_log_end_is_no_gap() -> None:
    log = follower(leader())
    with pytest.raises(CorruptBatch):
        log.take_stamped(leader().read(0, 300))


@pytest.mark.parametrize("end", range(60))
def test_a_log_that_is_truncated_in_a_gap_ends_with_the_batch_before_it(end: int) -> None:
    log = leader()
    before = [record for record in log.records() if record.offset < end]
    log.truncate(end)
    assert log.end <= end
    assert [record.offset for record in log.records()] == [record.offset for record in before]
    log.flush().reopen()
    assert log.damage == []
    log.append("more").flush().power_cut(keep=0.0).reopen()
    assert log.damage == []
    assert log.values() == [*((record.value or b"").decode() for record in before), "more"]


@pytest.mark.parametrize("cut", [1, 30])
def test_a_lost_end_among_gaps_is_truncated_where_it_begins(cut: int) -> None:
    """The lost batch, whose first or last bytes are still there, cannot be read."""
    source = LogFixture().append(*MANY[:7]).flush().checkpoint().append(*MANY)
    compact(source, 0, 1)
    log = LogFixture().take_stamped(source.read(0, 200)).flush()
    segment = log.log.segments[-1]
    assert segment.generation, "it has gaps"
    *_, (position, last) = segment.headers(0, segment.size)
    before = log.values()[:-1]
    log.disk.shorten(segment.path, position + cut)
    log.reopen()
    [damage] = log.damage
    assert isinstance(damage, LostTail)
    log.truncate(damage.offset)
    assert log.end <= last.base_offset
    assert log.values() == before
    log.flush().reopen()
    assert log.damage == []


@pytest.mark.parametrize("end", [3, 15, 30])
@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("keep", [None, 0.0, 1.0])
def test_what_was_truncated_does_not_come_back_with_a_replaced_segment(
    end: int, is_committed: bool, keep: float | None
) -> None:
    for step in range(STEPS_MAX):
        log = LogFixture().append(*MANY).flush().checkpoint()
        old = compact(log, 0, 3)
        kept = [offset for offset in range(end) if offset % 2]
        if is_committed:
            log.checkpoint()
        log.disk.faults.die_after(step)
        try:
            log.truncate(end)
            begin = log.end
            log.append(*(f"new-{number:02}" for number in range(20))).flush()
        except Died:
            log.power_cut(keep=keep).reopen()
            assert log.damage == [], f"step {step}"
            continue
        expected = [*(MANY[offset] for offset in kept if offset < begin), *log.values(begin)]
        assert log.values() == expected
        log.disk.faults.die_after(None)
        remove_replaced(log.checkpoint(), old)
        for _ in range(2):
            log.power_cut(keep=keep).reopen()
            assert (log.damage, log.values()) == ([], expected)
        return
    raise AssertionError("it never came to an end")


def test_files_of_replaced_segments_are_not_taken_for_new_ones() -> None:
    log = LogFixture().append(*MANY).flush().checkpoint()
    begin = log.bases[1]
    old = compact(log, 1, 2)
    taken = log.checkpoint().log.replaced.take(old)
    log.truncate(begin)
    log.append(*MANY).flush()
    assert not {segment.path for segment in log.log.segments} & {segment.path for segment in taken}


def test_a_gap_begins_a_segment_that_may_have_some() -> None:
    log = LogFixture().append(*MANY[:3]).flush()
    log.take_stamped(leader().read(5, 300)).flush()
    records = [record.offset for record in log.records()]
    log.append("more").flush().power_cut(keep=0.0).reopen()
    assert (log.damage, [record.offset for record in log.records()]) == ([], [*records, log.end - 1])
    assert log.path(3, "log").replace(".log", "-1.log") in log.disk.files()
