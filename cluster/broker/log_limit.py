"""Rate limit of the log: lines of one event that clients cause repeatedly must not fill a disk."""

from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

LINES_MAX = 100
INTERVAL_S = 10.0


class LogLimit:
    """A structlog processor that passes LINES_MAX lines of an event per INTERVAL_S, and reports the number dropped."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds from an arbitrary start."""
        self._clock = clock
        self._lines: dict[str, tuple[float, int]] = {}
        """Start of the interval and number of lines in it, by event."""

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return the event. Raises DropEvent for a line over the limit; critical lines are always logged."""
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
