"""Client metrics subscriptions: the configs of Kafka's resource type CLIENT_METRICS (KIP-714)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from cordwood.cluster.config.rows import ConfigRow, Source, Synonym
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.config_values import ValueType, integer, text_of, words

if TYPE_CHECKING:
    import re2

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
INTERVAL_MS = 300_000
SUBSCRIPTIONS_MAX = 100
"""Each is compared with every new client instance."""
PATTERN_CHARS_MAX = 1_000

SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What `match` compares with a regular expression."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """One config of a subscription."""

    type: ValueType
    default: tuple[str, ...] | int
    documentation: str


CLIENT_METRICS_CONFIGS: Mapping[str, ClientMetricsConfig] = {
    INTERVAL: ClientMetricsConfig(
        integer(100, 3_600_000), INTERVAL_MS, "The interval in ms at which clients push their metrics."
    ),
    MATCH: ClientMetricsConfig(
        words(),
        (),
        f"The clients that push: a list of SELECTOR=REGEX, all of which must match. Selectors: {', '.join(SELECTORS)}.",
    ),
    METRICS: ClientMetricsConfig(
        words(), (), "Prefixes of the metrics that clients push; * for all metrics, empty for none."
    ),
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that matching clients push, and the interval."""

    prefixes: tuple[str, ...]
    interval_ms: int
    matches: tuple[tuple[str, "re2._Regexp[str]"], ...]

    def holds_for(self, client: Mapping[str, str]) -> bool:
        """Return whether all selectors of the client match."""
        return all(pattern.fullmatch(client[selector]) is not None for selector, pattern in self.matches)


def check(name: str, configs: Mapping[str, str]) -> None:
    """Check the configs of a subscription. Raises Refused."""
    if not _NAME.fullmatch(name):
        message = "The name of a client metrics subscription is 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'."
        raise Refused(ErrorCode.invalid_request, message)
    for key, text in configs.items():
        config = CLIENT_METRICS_CONFIGS.get(key)
        if config is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown client metrics configuration: {key}")
        try:
            config.type.parse(text)
            if key == MATCH:
                _matches(text)
        except ValueError as error:
            raise Refused(ErrorCode.invalid_config, f"Invalid value {text} for {key}: it must be {error}.") from None


def subscription(configs: Mapping[str, str]) -> Subscription:
    """Return a subscription whose configs have been checked. Raises ValueError for others."""
    interval = CLIENT_METRICS_CONFIGS[INTERVAL].type.parse(configs.get(INTERVAL, str(INTERVAL_MS)))
    prefixes = words().parse(configs.get(METRICS, ""))
    assert isinstance(interval, int), "interval.ms is a number"
    assert isinstance(prefixes, tuple), "metrics is a list"
    return Subscription(prefixes, interval, _matches(configs.get(MATCH, "")))


def describe(configs: Mapping[str, str]) -> list[ConfigRow]:
    """Return a row for each config of a subscription, sorted by key."""
    rows = []
    for key, config in CLIENT_METRICS_CONFIGS.items():
        default = Synonym(key, text_of(config.default), Source.DEFAULT)
        own = [Synonym(key, configs[key], Source.DYNAMIC_CLIENT_METRICS)] if key in configs else []
        synonyms = (*own, default)
        first = synonyms[0]
        rows.append(ConfigRow(key, first.value, first.source, config.type.kind, False, config.documentation, synonyms))
    return rows


@lru_cache(maxsize=SUBSCRIPTIONS_MAX)
def _matches(text: str) -> tuple[tuple[str, "re2._Regexp[str]"], ...]:
    """Parse `match`. Raises ValueError, whose message completes a sentence after "must be"."""
    # Lazily: only clusters with subscriptions need it. RE2 does not backtrack: its time is linear.
    import re2

    found = []
    for word in (part.strip() for part in text.split(",")):
        if not word:
            continue
        selector, equals, pattern = word.partition("=")
        if not equals or selector not in SELECTORS:
            raise ValueError(f"a list of SELECTOR=REGEX, with selectors of {', '.join(SELECTORS)}")
        if len(pattern) > PATTERN_CHARS_MAX:
            raise ValueError(f"a list of regular expressions of at most {PATTERN_CHARS_MAX} characters")
        try:
            found.append((selector, re2.compile(pattern)))
        except re2.error:
            raise ValueError(f"a list of valid regular expressions, which {pattern!r} is not") from None
    return tuple(found)
