"""Tables compared as sets of rows: what Spark found, and what pandas says."""

from typing import Any

from pandas.testing import assert_frame_equal


def assert_same_rows(found: Any, expected: Any) -> None:
    """Both have the same columns and the same rows, in whatever order and kind of number, and there are some."""
    assert len(expected) > 0, "nothing is expected: this would show nothing"
    assert sorted(found.columns) == sorted(expected.columns)
    assert_frame_equal(_in_order(found), _in_order(expected[found.columns]), check_dtype=False)


def _in_order(frame: Any) -> Any:
    with_one_null = frame.mask(frame.isna(), float("nan"))
    return with_one_null.sort_values(list(frame.columns)).reset_index(drop=True)
