"""Rows of DescribeConfigs: each key's effective value, its source and its synonyms (KIP-226)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.metadata.config_values import Kind, Value, ValueType, text_of
from cordwood.cluster.metadata.image import EMPTY, Image


class Source(IntEnum):
    """Sources of a value, with Kafka's numbers; the lowest number has precedence."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value from one source, under its key in that source."""

    key: str
    value: str | None
    source: Source
    mistake: str | None = None
    """The description of valid values if `value` is invalid: it is ignored, and the next source counts."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One key of a resource with its effective value. Secrets are included: a caller must not show them."""

    key: str
    value: str | None
    source: Source
    kind: Kind
    is_read_only: bool
    documentation: str
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's configuration in layers: dynamic for this broker, dynamic for all brokers, static."""

    settings: Settings
    own: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    all_brokers: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    def synonyms(self, keys: Sequence[str]) -> Iterator[Synonym]:
        """Yield the value of each source that has one for these keys, in order of precedence."""
        for layer, source in ((self.own, Source.DYNAMIC_BROKER), (self.all_brokers, Source.DYNAMIC_ALL_BROKERS)):
            if layer:
                yield from (set_value(key, layer[key], source, SETTINGS[key].type) for key in keys if key in layer)
        for key in keys:
            if self.settings.is_given(key):
                yield Synonym(key, self.settings.text_of(key), Source.STATIC_BROKER)
        for key in keys:
            default = text_of(SETTINGS[key].default)
            if default is not None:
                yield Synonym(key, default, Source.DEFAULT)

    def found(self, keys: Sequence[str]) -> tuple[str, Value]:
        """Return the key whose value has precedence, and that value; the first key and None if no key has a value."""
        for layer in (self.own, self.all_brokers):
            for key in keys:
                if key in layer and (value := SETTINGS[key].type.read(layer[key])) is not None:
                    return key, value
        for key in keys:
            if self.settings.is_given(key) and (value := self.settings.value_of(key)) is not None:
                return key, value
        for key in keys:
            if (value := self.settings.value_of(key)) is not None:
                return key, value
        return keys[0], None

    def number(self, key: str) -> float:
        """Return the value of a key whose values are numbers."""
        _, value = self.found((key,))
        assert isinstance(value, int | float), f"{key} is a number"
        return value

    def rows(self) -> list[ConfigRow]:
        """Return a row for every setting of the broker, sorted by key."""
        return [self._row(key) for key in sorted(SETTINGS)]

    def rows_for_all_brokers(self) -> list[ConfigRow]:
        """Return a row for each dynamic setting of all brokers; the other settings belong to each broker."""
        return [
            ConfigRow(
                key,
                value,
                Source.DYNAMIC_ALL_BROKERS,
                SETTINGS[key].type.kind,
                False,
                documented(SETTINGS[key].documentation, (synonym,)),
                (synonym,),
            )
            for key, value in sorted(self.all_brokers.items())
            if key in SETTINGS
            for synonym in (set_value(key, value, Source.DYNAMIC_ALL_BROKERS, SETTINGS[key].type),)
        ]

    def _row(self, key: str) -> ConfigRow:
        setting = SETTINGS[key]
        synonyms = tuple(self.synonyms((key,)))
        counts = first_valid(synonyms)
        value, source = (None, Source.DEFAULT) if counts is None else (counts.value, counts.source)
        documentation = documented(setting.documentation, synonyms)
        return ConfigRow(key, value, source, setting.type.kind, not setting.is_dynamic, documentation, synonyms)


def set_value(key: str, text: str, source: Source, type_: ValueType) -> Synonym:
    """Return a value from the metadata as it was set. Another version or a faulty broker may set an invalid one."""
    try:
        type_.parse(text)
    except ValueError as error:
        return Synonym(key, text, source, str(error))
    return Synonym(key, text, source)


def first_valid(synonyms: Iterable[Synonym]) -> Synonym | None:
    """Return the valid synonym of the highest precedence, or None."""
    return next((synonym for synonym in synonyms if synonym.mistake is None), None)


def documented(documentation: str, synonyms: Iterable[Synonym]) -> str:
    """Return a key's documentation, with a sentence for each ignored value."""
    ignored = (
        f" The value {synonym.value!r} of {synonym.key} is ignored: it must be {synonym.mistake}."
        for synonym in synonyms
        if synonym.mistake is not None
    )
    return documentation + "".join(ignored)


def broker_config(settings: Settings, image: Image) -> BrokerConfig:
    """Return this broker's configuration as of an image."""
    return BrokerConfig(settings, image.configs_of_broker(settings.node_id), image.configs_of_all_brokers)
