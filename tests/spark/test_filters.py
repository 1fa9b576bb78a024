"""Filter pushdown: filters narrow the partitions and offsets to read, and lose no record that passes them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    StringStartsWith,
)

from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.filters import left_for_spark, useful
from cordwood.storage.types import TopicPartition

NOON = datetime(2026, 11, 21, 12, 0, 0, 500, tzinfo=UTC)
NOON_MS = 1_795_262_400_000
WHOLE = OffsetRange("t", 0, 10, 100)

offsets = st.integers(0, 120)
offset_filters = st.one_of(
    *(
        st.builds(kind, st.just(("offset",)), offsets)
        for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ),
    st.builds(In, st.just(("offset",)), st.lists(offsets, min_size=1, max_size=3).map(tuple)),
)


def passes(each: Filter, offset: int) -> bool:
    """Return whether the offset passes the filter in Spark's semantics: an independent implementation."""
    words = {EqualTo: "==", EqualNullSafe: "==", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", In: "in"}
    return bool(eval(f"{offset} {words.get(type(each), '<=')} {each.value}"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pushed", "kept"),
    [
        (EqualTo(("topic",), "a"), {"a-0", "a-1"}),
        (Not(EqualTo(("topic",), "a")), {"ab-0"}),
        (In(("topic",), ("ab", "c")), {"ab-0"}),
        (StringStartsWith(("topic",), "a"), {"a-0", "a-1", "ab-0"}),
        (IsNotNull(("topic",)), {"a-0", "a-1", "ab-0"}),
        (IsNull(("partition",)), set()),
        (GreaterThan(("partition",), 0), {"a-1"}),
        (LessThanOrEqual(("partition",), 0), {"a-0", "ab-0"}),
    ],
)
def test_partitions_that_cannot_pass_are_not_read(pushed: Filter, kept: set[str]) -> None:
    places = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("ab", 0)]
    narrowing = useful([pushed])
    assert {str(place) for place in places if narrowing.keeps(place)} == kept
    assert left_for_spark([pushed]) == []


@given(st.lists(offset_filters, max_size=3))
def test_what_is_read_holds_all_that_passes(filters: list[Filter]) -> None:
    part = useful(filters).clip(WHOLE)
    passing = [offset for offset in range(WHOLE.start, WHOLE.end) if all(passes(each, offset) for each in filters)]
    read = range(part.start, part.end)
    left = left_for_spark(filters)
    assert set(passing) <= set(read)
    assert [offset for offset in read if all(passes(each, offset) for each in left)] == passing


@pytest.mark.parametrize(
    "pushed",
    [
        GreaterThan(("timestamp",), NOON),
        GreaterThanOrEqual(("timestamp",), NOON),
        EqualTo(("timestamp",), NOON),
        In(("timestamp",), (NOON, NOON.replace(year=2027))),
    ],
)
def test_a_time_says_where_to_begin_and_no_more(pushed: Filter) -> None:
    assert useful([pushed]).not_before_ms == NOON_MS
    assert left_for_spark([pushed]) == [pushed]


@pytest.mark.parametrize(
    "pushed",
    [
        LessThan(("timestamp",), NOON),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        Not(GreaterThan(("timestamp",), NOON)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("offset",), None),
        Not(In(("partition",), (1, None))),
        EqualTo(("partition",), "1"),
        StringStartsWith(("partition",), "1"),
        Not(Not(EqualTo(("partition",), 1))),
    ],
)
def test_what_says_nothing_of_where_to_read_is_left_for_spark(pushed: Filter) -> None:
    narrowing = useful([pushed])
    assert narrowing.not_before_ms is None
    assert narrowing.clip(WHOLE) == WHOLE
    assert narrowing.keeps(WHOLE.place)
    assert left_for_spark([pushed]) == [pushed]
