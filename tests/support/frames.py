"""Comparison of tables as sets of rows: a Spark result with the pandas result."""

from typing import Any

from pandas.testing import assert_frame_equal


def assert_same_rows(found: Any, expected: Any) -> None:
    """Check that both have the same columns and rows, in any order and with any numeric types, and at least one row."""
    assert len(expected) > 0, "nothing is expected: this would show nothing"
    assert sorted(found.columns) == sorted(expected.columns)
    assert_frame_equal(_in_order(found), _in_order(expected[found.columns]), check_dtype=False)


def _in_order(frame: Any) -> Any:
    with_one_null = frame.mask(frame.isna(), float("nan"))
    return with_one_null.sort_values(list(frame.columns)).reset_index(drop=True)
