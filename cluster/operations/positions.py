"""Start positions for reading, as users write them: earliest, latest, an offset, or a timestamp."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

FORMS = "earliest, latest, an offset (1500), a time (2026-07-30T12:00:00Z) or milliseconds since 1970 (@1785412800000)"
OFFSET_END = 1 << 63


class NoPosition(ValueError):
    """A text that is no position. The message continues a sentence after the text: "'x' is …"."""


class Edge(Enum):
    """One end of a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition with this timestamp or a later one, in milliseconds since the epoch."""

    timestamp_ms: int


Position = Edge | AtOffset | AtTime


def parse(text: str) -> Position:
    """Parse a position. A time without a zone is UTC, as in Kafka's own tools. Raises NoPosition."""
    match text.strip():
        case "earliest":
            return Edge.EARLIEST
        case "latest":
            return Edge.LATEST
        case digits if _is_number(digits):
            return AtOffset(int(digits))
        case moment if moment.startswith("@") and _is_number(moment[1:]):
            return AtTime(int(moment[1:]))
        case moment:
            return AtTime(_epoch_ms(moment))


def _is_number(text: str) -> bool:
    """Return True for an offset. Longer digit strings are no offset, and Python may refuse to convert them."""
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < OFFSET_END


def _epoch_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        timestamp_ms = round(in_zone.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise NoPosition(f"not a position: give {FORMS}.") from None
    if timestamp_ms < 0:
        raise NoPosition("before 1970: give a later time.")
    return timestamp_ms
