"""Types of configuration values: kind, bounds, allowed words, and error messages that name the valid values."""

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import assert_never

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


class Kind(IntEnum):
    """The kinds of configuration values, with their numbers in Kafka's DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ValueType:
    """A kind with its inclusive bounds, or with the only words that are allowed."""

    kind: Kind
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    form: re.Pattern[str] | None = None
    """What each word of a list without `choices` matches."""
    form_in_words: str = ""

    def parse(self, text: str) -> Value:
        """Parse a value. Raises ValueError, whose message completes a sentence after "must be"."""
        text = text.strip()
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError("true or false")
                return text.lower() == "true"
            case Kind.INT | Kind.LONG:
                return self._whole_number(text)
            case Kind.DOUBLE:
                return self._decimal(text)
            case Kind.STRING:
                if self.choices and text not in self.choices:
                    raise ValueError(f"one of {', '.join(self.choices)}")
                return text
            case Kind.LIST:
                return self._words(text)
            case _:
                assert_never(self.kind)

    def read(self, text: str) -> Value:
        """Parse a value. Return None for an invalid text."""
        try:
            return self.parse(text)
        except ValueError:
            return None

    def _whole_number(self, text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text) or not self.least <= int(text) <= self.most:
            raise ValueError(f"a whole number {self._bounds()}")
        return int(text)

    def _decimal(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            raise ValueError(f"a number {self._bounds()}")
        return number

    def _words(self, text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(word for word in (part.strip() for part in text.split(",")) if word))
        if self.choices and not set(words) <= set(self.choices):
            raise ValueError(f"a comma-separated list of {', '.join(self.choices)}")
        if self.form is not None and words != ("*",) and not all(map(self.form.fullmatch, words)):
            raise ValueError(self.form_in_words)
        return words

    def _bounds(self) -> str:
        widest = INT_MAX if self.kind is Kind.INT else LONG_MAX
        return f"of at least {self.least}" if self.most == widest else f"from {self.least} to {self.most}"


def text_of(value: Value) -> str | None:
    """Return the value as Kafka's tools write it; None stays None."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def boolean() -> ValueType:
    return ValueType(Kind.BOOLEAN)


def integer(least: int = -INT_MAX - 1, most: int = INT_MAX) -> ValueType:
    """Return the type of a 32-bit number."""
    return ValueType(Kind.INT, least, most)


def long(least: int = -LONG_MAX - 1, most: int = LONG_MAX) -> ValueType:
    """Return the type of a 64-bit number."""
    return ValueType(Kind.LONG, least, most)


def decimal(least: float, most: float) -> ValueType:
    return ValueType(Kind.DOUBLE, least, most)


def string(*choices: str) -> ValueType:
    return ValueType(Kind.STRING, choices=choices)


def throttled_replicas() -> ValueType:
    """Return the type of a list of replicas: a partition and a broker each."""
    form_in_words = "* for all replicas, or a list of PARTITION:BROKER, separated by commas"
    return ValueType(Kind.LIST, form=_REPLICA, form_in_words=form_in_words)


def words(*choices: str) -> ValueType:
    """Return the type of a comma-separated list without repetition."""
    return ValueType(Kind.LIST, choices=choices)
