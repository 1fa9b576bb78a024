"""Lines of the broker's log: their format, and a limit for an event that clients cause repeatedly."""

from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

LINES_MAX = 100
INTERVAL_S = 10.0
_FIRST = ("timestamp", "level", "event")


def processors_of(log_format: str, node_id: int, *, is_terminal: bool) -> list[Any]:
    """Return structlog's processors for a format. `auto` is text on a terminal, and logfmt elsewhere.

    Every line begins with timestamp, level and event. Lines in logfmt and JSON have the broker's id.
    """
    if log_format == "auto":
        log_format = "text" if is_terminal else "logfmt"

    def with_node(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        event.setdefault("node", node_id)
        return event

    origin = [] if log_format == "text" else [with_node]
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        *origin,
        structlog.processors.ExceptionRenderer(),
        _printable,
        _in_order,
        _renderer(log_format),
    ]


def _in_order(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Put the timestamp, the level and the event first."""
    return {key: event[key] for key in _FIRST} | event


def _printable(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Escape control characters: a client must not forge a line, or command a terminal, by its name."""
    for key, text in event.items():
        if isinstance(text, str) and not text.isprintable():
            kept = "\n" if key == "exception" else ""
            event[key] = "".join(
                char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in text
            )
    return event


def _renderer(log_format: str) -> Any:
    match log_format:
        case "text":
            return structlog.dev.ConsoleRenderer(colors=False)
        case "json":
            return structlog.processors.JSONRenderer()
        case _:
            return structlog.processors.LogfmtRenderer()


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
