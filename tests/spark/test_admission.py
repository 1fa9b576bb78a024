"""Admission of a micro-batch: a fair share for each partition, and a bounded wait for a minimum of records."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.spark.admission import BatchLimits, admit, backlog_of, should_wait
from cordwood.storage.types import TopicPartition

Offsets = dict[TopicPartition, int]


def offsets(*each: int) -> Offsets:
    return {TopicPartition("t", number): offset for number, offset in enumerate(each)}


backlogs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10_000)), max_size=8)


def test_each_partition_has_its_share() -> None:
    assert admit(offsets(0, 0), offsets(900, 100), 100) == offsets(90, 10)


def test_a_small_backlog_is_not_starved_by_a_large_one() -> None:
    assert admit(offsets(0, 0), offsets(1_000_000, 1), 10) == offsets(9, 1)


def test_what_fits_is_taken_whole() -> None:
    assert admit(offsets(3, 5), offsets(7, 5), 100) == offsets(7, 5)


@given(backlogs, st.integers(1, 20_000))
def test_as_many_are_taken_as_may_be(pairs: list[tuple[int, int]], records_max: int) -> None:
    starts = offsets(*(start for start, _ in pairs))
    ends = offsets(*(start + backlog for start, backlog in pairs))
    admitted = admit(starts, ends, records_max)
    assert backlog_of(starts, admitted) == min(records_max, backlog_of(starts, ends))
    for place, end in admitted.items():
        assert starts[place] <= end <= ends[place]
        enough_for_all = records_max >= len(pairs)
        assert end > starts[place] or ends[place] == starts[place] or not enough_for_all


def test_a_batch_waits_for_enough_but_not_for_ever() -> None:
    limits = BatchLimits(records_min=100, delay_ms_max=60_000)
    assert should_wait(limits, backlog=99, since_last_ms=59_999)
    assert not should_wait(limits, backlog=100, since_last_ms=0)
    assert not should_wait(limits, backlog=1, since_last_ms=60_000)


def test_the_first_batch_does_not_wait() -> None:
    assert not should_wait(BatchLimits(records_min=100), backlog=1, since_last_ms=None)
    assert not should_wait(BatchLimits(), backlog=0, since_last_ms=0)
