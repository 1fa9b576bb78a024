"""Parsing and validation of data source options, with error messages for unknown and invalid ones."""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from cordwood.client.security import KEYS, REFUSED, ClientSecurity, client_security
from cordwood.client.tls import WrongSetting
from cordwood.spark.client.settings import Address, addresses
from cordwood.spark.errors import WrongOption, nearest

Choice = TypeVar("Choice", bound=StrEnum)

DURATION = re.compile(r"(\d+)\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?")
PREFIX = "kafka."
SECURITY: Mapping[str, tuple[str, ...]] = {
    "delegationTokens": (),
    **{PREFIX + name: tuple(PREFIX + other for other in others) for name, others in KEYS.items()},
}
"""The options of TLS and SASL with their other spellings, for readers and writers."""
REFUSED_SECURITY: Mapping[str, str] = {PREFIX + name: reason for name, reason in REFUSED.items()}
MS_OF_UNIT = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Options:
    """The given options, with case-insensitive names. A name has other spellings, such as Kafka's."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Mapping[str, tuple[str, ...]],
        refused: Mapping[str, str],
        group: str | None = None,
    ) -> None:
        """Check the names. `known` has each option's name with its other spellings; `refused` has reasons by name.

        Names that begin with `group` are not checked.

        Raises WrongOption for an unknown or a refused name.
        """
        self._known, self._values = known, {name.lower(): value for name, value in given.items()}
        spellings = {spelling.lower(): spelling for name, others in known.items() for spelling in (name, *others)}
        because = {name.lower(): reason for name, reason in refused.items()}
        for name in self._values:
            if name in because:
                raise WrongOption(f"option {name}: {because[name]}")
            if name not in spellings and not (group and name.startswith(group)):
                raise WrongOption(f"there is no option {name}: {_hint(name, spellings.values())}")

    def text(self, name: str) -> str | None:
        """Return the option's text under any of its spellings, or None. Raises WrongOption if two spellings differ."""
        found = {spelling: self._values[spelling.lower()].strip() for spelling in self._spellings(name)}
        if len(set(found.values())) > 1:
            raise WrongOption(f"{' and '.join(found)} are the same option with different values: leave one of them out")
        return next(iter(found.values()), None)

    def given(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that the user gave."""
        return [name for name in names if self._spellings(name)]

    def group(self, prefix: str) -> dict[str, str]:
        """Return the options whose names begin with `prefix` and are no options of ours, without the prefix."""
        known = {name.lower() for name in self._known}
        return {
            name.removeprefix(prefix): value.strip()
            for name, value in self._values.items()
            if name.startswith(prefix) and name not in known
        }

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean option. Raises WrongOption."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise WrongOption(f"{name} is {value!r}: it can be true or false")
        return value.lower() == "true"

    def number(self, name: str, minimum: int = 1) -> int | None:
        """Return an integer of at least `minimum`, or None if not given. Raises WrongOption."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < minimum:
            raise WrongOption(f"{name} is {value!r}: it must be a whole number, {minimum} or more")
        return int(value)

    def duration_ms(self, name: str) -> int | None:
        """Return a duration such as 30s, 15m or 1h in ms, or None. Without unit it is in ms. Raises WrongOption."""
        value = self.text(name)
        if value is None:
            return None
        match = DURATION.fullmatch(value.lower())
        if match is None:
            raise WrongOption(f"{name} is {value!r}: it must be a time, such as 500ms, 30s, 15m or 1h")
        unit = match[2] or ""
        return int(match[1]) * MS_OF_UNIT["ms" if unit == "ms" else unit[:1]]

    def choice(self, name: str, default: Choice) -> Choice:
        """Return a value of the default's enum. Raises WrongOption."""
        value = self.text(name)
        if value is None:
            return default
        kind = type(default)
        try:
            return kind(value.lower())
        except ValueError:
            raise WrongOption(f"{name} is {value!r}: it can be {' or '.join(kind)}") from None

    def json(self, name: str, example: str) -> Any:
        """Parse a given option as JSON. `example` is for the error message. Raises WrongOption."""
        value = self.text(name) or ""
        try:
            return json.loads(value)
        except ValueError as error:
            raise WrongOption(f"{name} is {value!r}, which is not JSON ({error}): write it as {example}") from None

    def _spellings(self, name: str) -> list[str]:
        return [spelling for spelling in (name, *self._known[name]) if spelling.lower() in self._values]


def bootstrap(options: Options) -> tuple[Address, ...]:
    """Return the bootstrap servers, which every reader and writer needs. Raises WrongOption."""
    text = options.text("bootstrapServers")
    if text is None:
        raise WrongOption('bootstrapServers is missing: give the addresses of brokers, as in "localhost:9092"')
    try:
        return addresses(text)
    except ValueError as error:
        raise WrongOption(f"bootstrapServers is {text!r}: {error}") from None


def security(options: Options) -> tuple[ClientSecurity, bool]:
    """Return the client's security, and whether executors get a delegation token. Raises WrongOption."""
    texts = {name: options.text(PREFIX + name) for name in KEYS}
    try:
        found = client_security({name: text for name, text in texts.items() if text})
    except WrongSetting as error:
        spelled = re.sub(r"(?<![\w.])(?=(?:security|ssl|enable\.ssl|sasl|https)\.)", PREFIX, str(error))
        raise WrongOption(spelled) from None
    delegates = options.flag("delegationTokens", False)
    if delegates and found.sasl is None:
        raise WrongOption(
            "delegationTokens needs a listener with SASL, where executors show their token: set kafka.security.protocol"
            " to SASL_SSL"
        )
    return found, delegates


def _hint(name: str, spellings: Iterable[str]) -> str:
    known = list(spellings)
    meant = nearest(name, known)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(known))}"
