"""The number of Python lines that a call runs: the cost of its steps, whatever the machine."""

import sys
from collections.abc import Callable


def lines(act: Callable[[], object]) -> int:
    """Return the number of Python lines that a call runs."""
    count = 0

    def trace(_frame: object, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        act()
    finally:
        sys.settrace(before)
    return count
