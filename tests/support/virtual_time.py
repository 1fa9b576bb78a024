"""A real asyncio loop whose clock does not wait: when there is nothing to do but wait for a timer, it is that late."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
STALLED_S = 30.0


class _Selector(selectors.DefaultSelector):
    """Passes the loop's waiting time at once."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            # Only another thread can still wake the loop up.
            ready = super().select(STALLED_S)
            assert ready, "everyone waits and no timer is set"
            return ready
        self.loop.passed_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`passed_s` is how long it would have waited."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.passed_s = 1000.0
        super().__init__(selector)

    def time(self) -> float:
        return self.passed_s


def run(story: Coroutine[Any, Any, _T]) -> _T:
    """Run a story to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)
