"""A limit for log lines of one kind, so that what clients cause again and again does not fill a disk."""

from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

LINES_MAX = 100
INTERVAL_S = 10.0


class LogLimit:
    """A processor for structlog: so many lines of one event in an interval. The next line says how many are missing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds, from whenever it likes."""
        self._clock = clock
        self._lines: dict[str, tuple[float, int]] = {}
        """By event: when its interval began, and how many lines it had."""

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Raises DropEvent for a line that is one too many. What ends the broker is always logged."""
        if method == "critical":
            return event
        now, kind = self._clock(), str(event.get("event"))
        began, count = self._lines.get(kind, (now, 0))
        if now - began >= INTERVAL_S:
            if count > LINES_MAX:
                event["left_out"] = count - LINES_MAX
            began, count = now, 0
        self._lines[kind] = began, count + 1
        if count >= LINES_MAX:
            raise structlog.DropEvent
        return event
