"""Options by name: taken one by one, checked, and a sentence for each that is unknown or wrong."""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from cordwood.spark.client.settings import Address, addresses
from cordwood.spark.mistakes import Mistake, WrongOption
from cordwood.spark.suggestions import nearest

Choice = TypeVar("Choice", bound=StrEnum)

DURATION = re.compile(r"(\d+)\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?")
MS_OF_UNIT = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Options:
    """What the user gave, whatever the case of the names. A name has one or two spellings: ours and Kafka's."""

    def __init__(
        self, given: Mapping[str, str], known: Mapping[str, tuple[str, ...]], refused: Mapping[str, str]
    ) -> None:
        """`known` is each option's name with its other spellings; `refused` says of a name why it cannot be.

        Raises WrongOption where a name is in neither, or where two spellings are given and differ.
        """
        self._known, self._values = known, {name.lower(): value for name, value in given.items()}
        spellings = {spelling.lower(): spelling for name, others in known.items() for spelling in (name, *others)}
        because = {name.lower(): reason for name, reason in refused.items()}
        for name in self._values:
            if name in because:
                raise WrongOption(f"option {name}: {because[name]}")
            if name not in spellings:
                raise WrongOption(f"there is no option {name}: {_hint(name, spellings.values())}")

    def text(self, name: str) -> str | None:
        """The option as it was given, under any of its spellings; None where it was not."""
        found = {spelling: self._values[spelling.lower()].strip() for spelling in self._spellings(name)}
        if len(set(found.values())) > 1:
            raise WrongOption(f"{' and '.join(found)} mean the same and say different things: leave one of them away")
        return next(iter(found.values()), None)

    def given(self, names: Iterable[str]) -> list[str]:
        """Those of these options that the user gave."""
        return [name for name in names if self._spellings(name)]

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise WrongOption(f"{name} is {value!r}: it can be true or false")
        return value.lower() == "true"

    def number(self, name: str, minimum: int = 1) -> int | None:
        """A whole number, `minimum` or more; None where it was not given."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < minimum:
            raise WrongOption(f"{name} is {value!r}: it must be a whole number, {minimum} or more")
        return int(value)

    def duration_ms(self, name: str) -> int | None:
        """A time like 30s, 15m or 1h; a bare number is in ms. None where it was not given."""
        value = self.text(name)
        if value is None:
            return None
        match = DURATION.fullmatch(value.lower())
        if match is None:
            raise WrongOption(f"{name} is {value!r}: it must be a time, such as 500ms, 30s, 15m or 1h")
        unit = match[2] or ""
        return int(match[1]) * MS_OF_UNIT["ms" if unit == "ms" else unit[:1]]

    def choice(self, name: str, default: Choice) -> Choice:
        """One of the words of the default's type."""
        value = self.text(name)
        if value is None:
            return default
        kind = type(default)
        try:
            return kind(value.lower())
        except ValueError:
            raise WrongOption(f"{name} is {value!r}: it can be {' or '.join(kind)}") from None

    def json(self, name: str, example: str) -> Any:
        """What the option's JSON says, of an option that was given; `example` is how to write it, for the sentence."""
        value = self.text(name) or ""
        try:
            return json.loads(value)
        except ValueError as error:
            raise WrongOption(f"{name} is {value!r}, which is not JSON ({error}): write it as {example}") from None

    def _spellings(self, name: str) -> list[str]:
        return [spelling for spelling in (name, *self._known[name]) if spelling.lower() in self._values]


def bootstrap(options: Options) -> tuple[Address, ...]:
    """The brokers to begin with, which every reader and writer needs."""
    text = options.text("bootstrapServers")
    if text is None:
        raise WrongOption('bootstrapServers is missing: say where the brokers are, as in "localhost:9092"')
    try:
        return addresses(text)
    except ValueError as error:
        raise WrongOption(f"bootstrapServers is {text!r}: {error}") from None


def in_option(name: str, mistake: Mistake) -> WrongOption:
    """The same mistake, with the option that it is in."""
    return WrongOption(f"{name}: {mistake}")


def _hint(name: str, spellings: Iterable[str]) -> str:
    known = list(spellings)
    meant = nearest(name, known)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(known))}"
