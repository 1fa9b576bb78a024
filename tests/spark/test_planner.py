"""Input partitions: every offset once, at least the wanted number of tasks, and none above the maximum length."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.planner import plan_input_partitions, ranges_between
from cordwood.storage.types import TopicPartition

ranges = st.lists(st.integers(0, 1000), max_size=6).map(
    lambda counts: [OffsetRange("t", number, 7, 7 + count) for number, count in enumerate(counts)]
)
limits = st.none() | st.integers(1, 300)


def test_only_partitions_with_something_to_read_are_ranges() -> None:
    one, two, new = (TopicPartition("t", number) for number in range(3))
    starts, ends = {one: 5, two: 9}, {one: 5, two: 12, new: 4}
    assert ranges_between(starts, ends) == [OffsetRange("t", 1, 9, 12)]


def test_the_longest_ranges_are_cut_first() -> None:
    parts = plan_input_partitions([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], tasks_min=4)
    assert [(part.partition, part.start, part.end) for part in parts] == [
        (0, 0, 33),
        (0, 33, 66),
        (0, 66, 100),
        (1, 0, 10),
    ]


@given(ranges, limits, limits)
def test_every_offset_is_read_once(whole: list[OffsetRange], tasks_min: int | None, records_max: int | None) -> None:
    parts = plan_input_partitions(whole, tasks_min=tasks_min, records_max=records_max)
    assert all(part.count for part in parts)
    for each in whole:
        covered = [offset for part in parts if part.place == each.place for offset in range(part.start, part.end)]
        assert covered == list(range(each.start, each.end))


@given(ranges, limits, limits)
def test_there_are_enough_tasks_and_none_is_too_long(
    whole: list[OffsetRange], tasks_min: int | None, records_max: int | None
) -> None:
    parts = plan_input_partitions(whole, tasks_min=tasks_min, records_max=records_max)
    offsets = sum(each.count for each in whole)
    assert len(parts) >= min(tasks_min or 0, offsets)
    assert all(part.count <= (records_max or part.count) for part in parts)
    if records_max is None and tasks_min is not None:
        assert len(parts) <= max(tasks_min, len(whole))
