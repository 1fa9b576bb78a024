"""Format of the broker's log: text for a terminal, logfmt or JSON for log collectors."""

from typing import Any

import structlog


def processors_of(log_format: str, node_id: int, *, is_terminal: bool) -> list[Any]:
    """Return structlog's processors for a format. `auto` is text on a terminal, and logfmt elsewhere.

    Lines in logfmt and JSON have the broker's id.
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
        _renderer(log_format),
    ]


def _renderer(log_format: str) -> Any:
    match log_format:
        case "text":
            return structlog.dev.ConsoleRenderer(colors=False)
        case "json":
            return structlog.processors.JSONRenderer()
        case _:
            return structlog.processors.LogfmtRenderer()
