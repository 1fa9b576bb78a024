"""Filter pushdown: Spark's filters as fewer partitions and narrower offset ranges.

Topic, partition and offset are never null and are known before a record is read, so Spark need not evaluate their
filters again. A timestamp filter gives only the first offset that can match: records may be out of timestamp order.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from cordwood.columnar.columns import Column
from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.types import TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

_OFFSETS_MAX = 1 << 63

_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda actual, values: actual in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
    IsNull: lambda _actual, _: False,
    IsNotNull: lambda _actual, _: True,
}
"""The test of a non-null value, by filter type. Other filter types are left to Spark."""

_KINDS = {Column.TOPIC: str, Column.PARTITION: int, Column.OFFSET: int, Column.TIMESTAMP: datetime}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The effect of the pushed-down filters on partitions and offset ranges."""

    filters: tuple[Filter, ...] = ()

    def keeps(self, place: TopicPartition) -> bool:
        """Return whether a partition can have matching records."""
        values = {Column.TOPIC: place.topic, Column.PARTITION: place.partition}
        return all(_holds(each, values[column]) for each in self.filters if (column := _column(each)) in values)

    def clip(self, whole: OffsetRange) -> OffsetRange:
        """Return the part of a range whose offsets match."""
        bounds = [_offsets(each) for each in self.filters if _column(each) is Column.OFFSET]
        start = max([whole.start, *(low for low, _ in bounds)])
        end = min([whole.end, *(high for _, high in bounds)])
        return OffsetRange(whole.topic, whole.partition, start, max(start, end))

    @property
    def not_before_ms(self) -> int | None:
        """The earliest time of a matching record; None without a timestamp filter."""
        times = [_not_before_ms(each) for each in self.filters if _column(each) is Column.TIMESTAMP]
        return max((time for time in times if time is not None), default=None)


def useful(filters: Iterable[Filter]) -> Narrowing:
    """Return the filters that reduce reading."""
    return Narrowing(tuple(each for each in filters if _column(each) is not None))


def left_for_spark(filters: Sequence[Filter]) -> list[Filter]:
    """Return the filters that Spark must evaluate for every record."""
    return [each for each in filters if not _is_fulfilled(each)]


def _is_fulfilled(each: Filter) -> bool:
    match _column(each):
        case Column.TOPIC | Column.PARTITION:
            return True
        case Column.OFFSET:
            return not isinstance(each, In | Not | IsNull)
        case _:
            return False


def _column(each: Filter) -> Column | None:
    """Return the column of a filter, if the filter type is supported and its values have the column's type."""
    inner = each.child if isinstance(each, Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if type(inner) not in _TESTS or len(path) != 1 or path[0] not in _KINDS:
        return None
    column = Column(path[0])
    return column if all(_fits(value, column) for value in _values(inner)) else None


def _fits(value: Any, column: Column) -> bool:
    return type(value) is _KINDS[column] and getattr(value, "tzinfo", UTC) is not None


def _values(each: Filter) -> tuple[Any, ...]:
    if isinstance(each, In):
        return each.value
    return (each.value,) if hasattr(each, "value") else ()


def _holds(each: Filter, actual: Any) -> bool:
    if isinstance(each, Not):
        return not _holds(each.child, actual)
    return _TESTS[type(each)](actual, getattr(each, "value", None))


def _offsets(each: Filter) -> tuple[int, int]:
    """Return a half-open range with all matching offsets."""
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return value, value + 1
        case In(_, values) if values:
            return min(values), max(values) + 1
        case GreaterThan(_, value):
            return value + 1, _OFFSETS_MAX
        case GreaterThanOrEqual(_, value):
            return value, _OFFSETS_MAX
        case LessThan(_, value):
            return 0, value
        case LessThanOrEqual(_, value):
            return 0, value + 1
    return 0, _OFFSETS_MAX


def _not_before_ms(each: Filter) -> int | None:
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value) | GreaterThanOrEqual(_, value) | GreaterThan(_, value):
            return _floor_ms(value)
        case In(_, values) if values:
            return min(map(_floor_ms, values))
    return None


def _floor_ms(time: datetime) -> int:
    """Return a UTC time in milliseconds, rounded down: at most the records of one millisecond are read in vain."""
    return (time - EPOCH) // MILLISECOND
