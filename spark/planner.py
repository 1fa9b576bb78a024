"""The input partition planner: splits offset ranges into tasks, by a minimum of tasks and a maximum of records."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import ceil

from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.types import TopicPartition


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the non-empty offset ranges of the partitions that are in both mappings, sorted."""
    both = (OffsetRange(place.topic, place.partition, starts[place], ends[place]) for place in ends if place in starts)
    return sorted(each for each in both if each.count)


def plan_input_partitions(
    ranges: Iterable[OffsetRange], *, tasks_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges into smaller ones of at most `records_max` offsets; each is one task.

    Then split the largest further until there are `tasks_min` ranges, or each has a single offset. The parts of a range
    have equal lengths, plus or minus one.
    """
    whole = [each for each in ranges if each.count]
    parts = [ceil(each.count / records_max) if records_max else 1 for each in whole]
    missing = (tasks_min or 0) - sum(parts)
    # The largest part is on top: the heap holds negated lengths.
    heap = [(-each.count / count, number) for number, (each, count) in enumerate(zip(whole, parts, strict=True))]
    heapq.heapify(heap)
    while missing > 0 and heap and heap[0][0] < -1:
        _, number = heapq.heappop(heap)
        parts[number] += 1
        heapq.heappush(heap, (-whole[number].count / parts[number], number))
        missing -= 1
    return [part for each, count in zip(whole, parts, strict=True) for part in _cut(each, count)]


def _cut(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    edges = [whole.start + whole.count * number // parts for number in range(parts + 1)]
    for start, end in pairwise(edges):
        yield OffsetRange(whole.topic, whole.partition, start, end)
