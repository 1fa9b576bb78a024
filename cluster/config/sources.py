"""Configuration from a file, the environment and the command line, in rising precedence; every mistake is reported."""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cordwood.cluster.config.archive_settings import archive_mistakes
from cordwood.cluster.config.group_settings import group_mistakes
from cordwood.cluster.config.link_credentials import credentials_of
from cordwood.cluster.config.listeners import ListenerMistake, check_overrides, http_address
from cordwood.cluster.config.per_ip import PerIpMistake, per_ip_overrides
from cordwood.cluster.config.sasl import check_mechanisms, oauthbearer_mistakes
from cordwood.cluster.config.settings import (
    LISTENER_PREFIX,
    SECRETS,
    SETTINGS,
    Settings,
    attribute_of,
    key_of,
    overridden,
    override_key,
)
from cordwood.cluster.config.super_users import SuperUserMistake, super_users_of
from cordwood.cluster.config.voters import VoterMistake, check_secret
from cordwood.cluster.metadata.config_values import Kind, Value

ENVIRONMENT_PREFIX = "CORDWOOD_"

NOT_SETTINGS = frozenset(
    {
        "CORDWOOD_BOOTSTRAP_SERVERS",
        "CORDWOOD_CONFIG",
        "CORDWOOD_DOCKER_CACHE",
        "CORDWOOD_RECORDS",
        "CORDWOOD_REQUIRE",
    }
)
"""Environment variables of the command line and of the tests. Brokers inherit them; they are not settings."""


class ConfigMistakes(Exception):
    """Mistakes in a configuration: one sentence each, which says what to do."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = tuple(sentences)


def load(toml: str | None = None, environ: Mapping[str, str] | None = None, overrides: Iterable[str] = ()) -> Settings:
    """Return the settings from a TOML text, `CORDWOOD_LOG_DIRS=…` and the like, and `key=value` texts.

    Later sources have precedence. Reads no file and no environment by itself. Raises ConfigMistakes with all mistakes.
    """
    mistakes: list[str] = []
    rows: list[tuple[str, str, str]] = []
    rows += _of_toml(toml or "", mistakes)
    rows += _of_environment(environ or {})
    rows += _of_overrides(overrides, mistakes)
    values: dict[str, Value] = {}
    overrides_of_listeners: dict[str, Value] = {}
    for origin, written, text in rows:
        key, kept = written, values
        setting = SETTINGS.get(key)
        if setting is None and key.lower().startswith(LISTENER_PREFIX):
            key, kept = override_key(key), overrides_of_listeners
            setting = overridden(key)
        if setting is None:
            mistakes.append(_unknown(origin, key))
            continue
        try:
            kept[key] = setting.type.parse(text)
        except ValueError as error:
            shown = "set" if setting.key in SECRETS else repr(text)
            mistakes.append(f"{origin}: {key} is {shown}, but must be {error}.")
    attributes: dict[str, Any] = {attribute_of(key): value for key, value in values.items()}
    settings = Settings(given=frozenset(values), listener_overrides=overrides_of_listeners, **attributes)
    # Several checks may find the same mistake.
    mistakes += dict.fromkeys(_contradictions(settings))
    if mistakes:
        raise ConfigMistakes(mistakes)
    return settings


def _of_toml(toml: str, mistakes: list[str]) -> Iterator[tuple[str, str, str]]:
    try:
        table = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        hint = ""
        if "overwrite" in str(error):
            hint = ' If one key is a prefix of another, put it in quotes: "max.connections.per.ip" = 100.'
        mistakes.append(f"The configuration file is not valid TOML: {error}.{hint}")
        return
    for key, value in _flat(table):
        text = _text(value)
        if text is None:
            mistakes.append(
                f"The configuration file: {key} is a {type(value).__name__}, but must be a string or a number."
            )
        else:
            yield "The configuration file", key, text


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys with their values. Dotted keys, quoted keys and tables are equivalent."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(word, str | int) for word in value):
            return ",".join(map(str, value))
        case _:
            return None


def _of_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, text in sorted(environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            yield f"The environment variable {name}", key_of(name.removeprefix(ENVIRONMENT_PREFIX).lower()), text


def _of_overrides(overrides: Iterable[str], mistakes: list[str]) -> Iterator[tuple[str, str, str]]:
    for override in overrides:
        key, separator, text = override.partition("=")
        if separator:
            yield f"--set {override}", key.strip(), text
        else:
            mistakes.append(f"--set {override}: write it as key=value.")


def _unknown(origin: str, key: str) -> str:
    near = difflib.get_close_matches(key, SETTINGS, n=1, cutoff=0.6)
    return f"{origin}: there is no setting {key}." + (f" Did you mean {near[0]}?" if near else "")


def _contradictions(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each required list that is empty, and for values that contradict each other.

    A topic's list may be empty: without a cleanup policy everything is kept.
    """
    for key, setting in SETTINGS.items():
        if setting.type.kind is Kind.LIST and setting.default and not setting.is_dynamic and not settings.value_of(key):
            yield f"{key} is empty: give at least one value, such as {','.join(_words(setting.default))}."
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        yield (
            "group.min.session.timeout.ms is larger than group.max.session.timeout.ms, so that no member could"
            " join: lower the first or raise the second."
        )
    if settings.message_max_bytes > settings.socket_request_max_bytes:
        yield (
            "message.max.bytes is larger than socket.request.max.bytes, so that the largest batch could not be"
            " received: lower the first or raise the second."
        )
    if settings.log_cleaner_min_compaction_lag_ms > settings.log_cleaner_max_compaction_lag_ms:
        yield (
            "log.cleaner.min.compaction.lag.ms is larger than log.cleaner.max.compaction.lag.ms: lower the"
            " first or raise the second."
        )
    try:
        if settings.listeners:
            credentials_of(settings)
            check_mechanisms(settings)
    except ListenerMistake as mistake:
        yield str(mistake)
    yield from oauthbearer_mistakes(settings)
    yield from archive_mistakes(settings)
    yield from group_mistakes(settings)
    for check in (http_address, check_secret, check_overrides, per_ip_overrides, super_users_of):
        try:
            check(settings)
        except (ListenerMistake, PerIpMistake, VoterMistake, SuperUserMistake) as mistake:
            yield str(mistake)


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
