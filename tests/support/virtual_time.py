"""An asyncio loop in virtual time: where only a timer is left to wait for, the clock advances to it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
STALLED_S = 30.0


class _Selector(selectors.DefaultSelector):
    """A selector that adds the loop's waiting time to its clock instead of waiting."""

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
    """An event loop with a virtual clock; `passed_s` is its time."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.passed_s = 1000.0
        super().__init__(selector)

    def time(self) -> float:
        return self.passed_s


def run(story: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)
