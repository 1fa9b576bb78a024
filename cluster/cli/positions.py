"""Where to begin reading, as a user says it: earliest, latest, an offset, or a moment."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from cordwood.cluster.cli.exits import ExitCode, Failure

FORMS = "earliest, latest, an offset (1500), a time (2026-07-30T12:00:00Z) or milliseconds since 1970 (@1785412800000)"
OFFSET_END = 1 << 63


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
    """The first record of each partition whose timestamp is this or later, in milliseconds since the epoch."""

    timestamp_ms: int


Position = Edge | AtOffset | AtTime


def parse(text: str, option: str) -> Position:
    """Read a position given to `option`. A time without a zone is UTC, as in Kafka's own tools.

    Raises Failure with exit code 2.
    """
    match text.strip():
        case "earliest":
            return Edge.EARLIEST
        case "latest":
            return Edge.LATEST
        case digits if digits.isdecimal() and int(digits) < OFFSET_END:
            return AtOffset(int(digits))
        case moment if moment.startswith("@") and moment[1:].isdecimal() and int(moment[1:]) < OFFSET_END:
            return AtTime(int(moment[1:]))
        case moment:
            return AtTime(_epoch_ms(moment, option))


def _epoch_ms(text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"{option} {text!r} is no position: give {FORMS}.", ExitCode.USAGE) from None
    in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    timestamp_ms = round(in_zone.timestamp() * 1000)
    if timestamp_ms < 0:
        raise Failure(f"{option} {text!r} is before 1970: no record is that old.", ExitCode.USAGE)
    return timestamp_ms
