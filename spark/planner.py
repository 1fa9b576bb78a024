"""How the ranges to read are cut into tasks: at least so many, and none with more than so many records."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import ceil

from cordwood.spark.ranges import OffsetRange, TopicPartition


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What lies between the offsets of the partitions that have both; those with nothing in between are left out."""
    both = (OffsetRange(place.topic, place.partition, starts[place], ends[place]) for place in ends if place in starts)
    return sorted(each for each in both if each.count)


def plan_input_partitions(
    ranges: Iterable[OffsetRange], *, tasks_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The same offsets in smaller ranges: one is one task.

    None is longer than `records_max`. Then the largest are cut further until there are `tasks_min`, or until each has
    a single offset. A range is cut into parts of equal length, give or take one.
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
