"""Column operations for the checkers: consecutive rows of a group, running maxima, dense numbers for offsets."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from cordwood.chaos.history import Column

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

NOTHING = np.iinfo(np.int64).min
"""Placeholder where there is no value."""


def consecutive(*keys: Column) -> tuple[Rows, Rows]:
    """Return the rows that have a successor in their group, and those successors. Rows of a group have equal keys."""
    group = _group_numbers(keys)
    order = np.argsort(group, kind="stable")
    follows = np.flatnonzero(group[order[1:]] == group[order[:-1]])
    return order[follows], order[follows + 1]


def _group_numbers(keys: Sequence[Column]) -> npt.NDArray[np.unsignedinteger]:
    """Return one number per combination of keys. numpy sorts 16-bit integers in linear time."""
    numbers: Column = np.zeros(len(keys[0]), np.int64)
    groups = 1
    for key in keys:
        if not len(key):
            break
        least = int(key.min())
        span = int(key.max()) - least + 1
        groups *= span
        numbers = numbers * span + (key - least)
    assert groups < 1 << 63, "clients, partitions, groups and generations are small numbers"
    return numbers.astype(np.uint16 if groups <= 1 << 16 else np.uint64)


def per_partition(partitions: int, start: int) -> Column:
    """Return a column with the same initial number for each partition."""
    return np.full(partitions, start, np.int64)


class RunningMax:
    """The largest number per partition up to a time, from (partition, time, number) in any order."""

    def __init__(self, partition: Column, time: Column, number: Column) -> None:
        order = np.lexsort((time, partition))
        partition, self._time, self._number = partition[order], time[order], number[order].copy()
        begins = np.flatnonzero(np.diff(partition, prepend=partition[:1] - 1)).tolist()
        ends = begins[1:] + [len(partition)] * bool(begins)
        self._spans = [(int(partition[begin]), begin, end) for begin, end in zip(begins, ends, strict=True)]
        for _, begin, end in self._spans:
            np.maximum.accumulate(self._number[begin:end], out=self._number[begin:end])

    def before(self, partition: Column, time: Column) -> Column:
        """Return, by row, the largest number at an earlier time; NOTHING where there is none."""
        found = np.full(len(partition), NOTHING, np.int64)
        for each, begin, end in self._spans:
            rows = np.flatnonzero(partition == each)
            places = begin + np.searchsorted(self._time[begin:end], time[rows], "left")
            is_known = places > begin
            found[rows[is_known]] = self._number[places[is_known] - 1]
        return found


class Places:
    """Dense numbers for all places. A place is (partition, offset); numbers follow that order."""

    def __init__(self, partitions: int, claims: Sequence[tuple[Column, Column]]) -> None:
        """Number the places of `claims`, which are columns of partitions and offsets."""
        self._distinct: Column | None = None
        self._lay_out(partitions, claims)
        rows = sum(len(offset) for _, offset in claims)
        if self.count > 4 * rows + partitions:
            # An offset far from all others, as corruption makes it, must not allocate memory for the offsets between.
            self._distinct = _distinct([offset for _, offset in claims])
            self._lay_out(partitions, claims)

    def _lay_out(self, partitions: int, claims: Sequence[tuple[Column, Column]]) -> None:
        first = per_partition(partitions, np.iinfo(np.int64).max)
        last = per_partition(partitions, NOTHING)
        for partition, offset in claims:
            rank = self._rank(offset)
            np.minimum.at(first, partition, rank)
            np.maximum.at(last, partition, rank)
        sizes = [max(high - low + 1, 0) for low, high in zip(first.tolist(), last.tolist(), strict=True)]
        self.count = sum(sizes)
        bases = [base - low for base, low in zip(accumulate(sizes, initial=0), first.tolist(), strict=False)]
        self._base = np.array([base if size else 0 for base, size in zip(bases, sizes, strict=True)], np.int64)

    def numbers(self, partition: Column, offset: Column) -> Column:
        """Return the place of each row. An offset without a claim maps to the place of the next claimed offset."""
        return self._base[partition] + self._rank(offset)

    def _rank(self, offset: Column) -> Column:
        return offset if self._distinct is None else np.searchsorted(self._distinct, offset)


def _distinct(columns: Sequence[Column]) -> Column:
    # np.unique hashes integers since numpy 2.3, which is a hundred times slower for millions of them.
    ordered: Column = np.sort(np.concatenate(columns))
    distinct: Column = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return distinct
