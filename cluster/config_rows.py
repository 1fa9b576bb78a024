"""What a configuration is worth and where that comes from: the rows that DescribeConfigs answers with (KIP-226)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from cordwood.cluster.config import SETTINGS, Settings
from cordwood.cluster.config_values import Kind, Value, text_of
from cordwood.cluster.metadata.image import EMPTY, Image


class Source(IntEnum):
    """Where a value was set, by Kafka's numbers; a lower one goes first."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place where a value may come from, under the key that it has there."""

    key: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One key of a resource as it stands, secrets included: whoever shows rows to others leaves those out."""

    key: str
    value: str | None
    source: Source
    kind: Kind
    is_read_only: bool
    documentation: str
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's settings, in layers: what was set for it at run time, for all brokers, and at its start."""

    settings: Settings
    own: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    all_brokers: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    def synonyms(self, keys: Sequence[str]) -> Iterator[Synonym]:
        """Where any of these keys has a value, the place that counts first."""
        for layer, source in ((self.own, Source.DYNAMIC_BROKER), (self.all_brokers, Source.DYNAMIC_ALL_BROKERS)):
            if layer:
                yield from (Synonym(key, layer[key], source) for key in keys if key in layer)
        for key in keys:
            if self.settings.is_given(key):
                yield Synonym(key, self.settings.text_of(key), Source.STATIC_BROKER)
        for key in keys:
            default = text_of(SETTINGS[key].default)
            if default is not None:
                yield Synonym(key, default, Source.DEFAULT)

    def found(self, keys: Sequence[str]) -> tuple[str, Value]:
        """The key among these whose value counts, and its value; the first key where none has one."""
        for layer in (self.own, self.all_brokers):
            for key in keys:
                if key in layer:
                    return key, SETTINGS[key].type.parse(layer[key])
        for key in keys:
            if self.settings.is_given(key) and (value := self.settings.value_of(key)) is not None:
                return key, value
        for key in keys:
            if (value := self.settings.value_of(key)) is not None:
                return key, value
        return keys[0], None

    def rows(self) -> list[ConfigRow]:
        """Every setting of the broker, by key."""
        return [self._row(key) for key in sorted(SETTINGS)]

    def rows_for_all_brokers(self) -> list[ConfigRow]:
        """Only what was set for all brokers at run time: the rest belongs to each."""
        return [
            ConfigRow(
                key,
                value,
                Source.DYNAMIC_ALL_BROKERS,
                SETTINGS[key].type.kind,
                False,
                SETTINGS[key].documentation,
                (Synonym(key, value, Source.DYNAMIC_ALL_BROKERS),),
            )
            for key, value in sorted(self.all_brokers.items())
            if key in SETTINGS
        ]

    def _row(self, key: str) -> ConfigRow:
        setting = SETTINGS[key]
        synonyms = tuple(self.synonyms((key,)))
        value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, Source.DEFAULT)
        return ConfigRow(key, value, source, setting.type.kind, not setting.is_dynamic, setting.documentation, synonyms)


def broker_config(settings: Settings, image: Image) -> BrokerConfig:
    """This broker's layers as of an image."""
    return BrokerConfig(settings, image.configs_of_broker(settings.node_id), image.configs_of_all_brokers)
