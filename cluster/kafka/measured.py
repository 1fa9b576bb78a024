"""A coroutine wrapper that measures how long each step blocks the event loop."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from cordwood.replication.measures import Clock


class Measured(Generator[Any, Any, Any]):
    """An awaitable around `work` that calls `held` with the duration of each step in seconds."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock: Clock, held: Callable[[float], None]) -> None:
        self._work, self._clock, self._held = work, clock, held

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Run the next step and return the awaited future."""
        began = self._clock()
        try:
            return self._work.send(value)
        finally:
            self._held(self._clock() - began)

    def throw(self, *error: Any) -> Any:
        """Run the next step after an error or a cancellation."""
        began = self._clock()
        try:
            return self._work.throw(*error)
        finally:
            # The error leads to this frame by its traceback: with the error it would be a reference cycle.
            del error
            self._held(self._clock() - began)
