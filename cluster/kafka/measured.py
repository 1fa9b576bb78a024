"""A coroutine of which every step is measured: how long it holds the event loop between two waits."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from cordwood.replication.measures import Clock


class Measured(Generator[Any, Any, Any]):
    """To be awaited in place of `work`. `held` is given the seconds of each step."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock: Clock, held: Callable[[float], None]) -> None:
        self._work, self._clock, self._held = work, clock, held

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """The next step; what it waits for."""
        began = self._clock()
        try:
            return self._work.send(value)
        finally:
            self._held(self._clock() - began)

    def throw(self, *error: Any) -> Any:
        """As `send`, where the wait ended with an error or was cancelled."""
        began = self._clock()
        try:
            return self._work.throw(*error)
        finally:
            self._held(self._clock() - began)
