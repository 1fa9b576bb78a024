"""The configuration reference: settings of a broker, configs of topics and of groups, from the tables in the code."""

from collections.abc import Iterator

import pages

from cordwood.cluster.config.group_configs import GROUP_CONFIGS
from cordwood.cluster.config.group_configs import value_of as group_value_of
from cordwood.cluster.config.rows import BrokerConfig
from cordwood.cluster.config.setting import DAY_MS, HOUR_MS, KIB, MIB, SECOND_MS, Setting
from cordwood.cluster.config.settings import SECRETS, SETTINGS, Settings
from cordwood.cluster.config.topic_configs import TOPIC_CONFIGS, value_of
from cordwood.cluster.metadata.config_values import INT_MAX, LONG_MAX, Kind, Value, ValueType, text_of

HEADINGS = ("key", "type", "default", "meaning")

_UNITS_MS = ((DAY_MS, "days"), (HOUR_MS, "hours"), (60 * SECOND_MS, "minutes"), (SECOND_MS, "seconds"))
_UNITS_BYTES = ((MIB, "MiB"), (KIB, "KiB"))

_INTRODUCTION = """\
Keys have Kafka's names where Kafka has them. A broker reads them when it starts: from a TOML file, from the environment
and from `--set` ([where settings come from](../deploy.md#where-settings-come-from)). With an unknown key or an invalid
value the broker does not start, and the error message names the valid values.

To see the configuration of a running broker, use DescribeConfigs as with Kafka, or read its configuration file.
"""

_BROKER = """
## Settings of a broker

They apply from the broker's start until it stops. To change a setting, change the file and restart the broker.
"""

_DEFAULTS = """
## Defaults for topics

These settings apply to every topic without its own config. They can be set like the others, or changed at run time
(AlterConfigs), for one broker or for all.
"""

_TOPICS = """
## Configs of a topic

They can be changed for one topic at any time: `cordwood topic alter orders --config retention.ms=86400000`, or
`--config` with `cordwood topic create`. A topic without the config has its brokers' default, whose key is in the last
column.
"""

_GROUPS = """
## Configs of a group

They can be changed for one group at any time, also before the group exists (AlterConfigs of the resource type `GROUP`,
as with `kafka-configs --entity-type groups`), and take effect with the next heartbeat or fetch of a member. They need
[`metadata.version` 3](../operations/upgrade.md). A group without the config has its brokers' default, whose key is in
the last column. A value must be within the brokers' bounds, `group.KIND.min.KEY` and `group.KIND.max.KEY`; bounds that
are narrowed later limit the values that are set.
"""


def page() -> str:
    """docs/reference/configuration.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Configuration"
    yield ""
    yield pages.heading_note("the tables of cluster/config/: settings.py, topic_configs.py, group_configs.py")
    yield _INTRODUCTION.rstrip()
    rows = [SETTINGS[key] for key in sorted(SETTINGS)]
    yield _BROKER
    yield from pages.table(HEADINGS, (_setting_row(row) for row in rows if not row.is_dynamic))
    yield _DEFAULTS
    yield from pages.table(HEADINGS, (_setting_row(row) for row in rows if row.is_dynamic))
    yield _TOPICS
    yield from pages.table((*HEADINGS, "broker's key"), _topic_rows())
    yield _GROUPS
    yield from pages.table((*HEADINGS, "broker's key"), _group_rows())


def _setting_row(row: Setting) -> tuple[str, ...]:
    secret = " Its value is never shown." if row.key in SECRETS else ""
    default = "none" if row.default in ("", ()) else _in_words(row.key, row.default)
    return f"`{row.key}`", _type(row.type), default, row.documentation + secret


def _topic_rows() -> Iterator[tuple[str, ...]]:
    broker = BrokerConfig(Settings())
    for key in sorted(TOPIC_CONFIGS):
        row = TOPIC_CONFIGS[key]
        broker_keys = ", ".join(f"`{name}`" for name in row.broker_keys)
        default = _in_words(key, value_of(key, {}, broker))
        yield f"`{key}`", _type(row.type), default, row.documentation, broker_keys


def _group_rows() -> Iterator[tuple[str, ...]]:
    broker = BrokerConfig(Settings())
    for key in sorted(GROUP_CONFIGS):
        row = GROUP_CONFIGS[key]
        value = group_value_of(key, {}, broker)
        default = _in_words(key, value) if value != "" else "none"
        yield f"`{key}`", _type(row.type), default, row.documentation, f"`{row.broker_key}`" if row.broker_key else ""


def _type(kind: ValueType) -> str:
    match kind.kind:
        case Kind.BOOLEAN:
            return "true or false"
        case Kind.INT | Kind.LONG | Kind.DOUBLE:
            return _number(kind)
        case Kind.STRING | Kind.LIST:
            one = "list" if kind.kind is Kind.LIST else "text"
            return f"{one}: {', '.join(f'`{word}`' for word in kind.choices)}" if kind.choices else one


def _number(kind: ValueType) -> str:
    name = "decimal number" if kind.kind is Kind.DOUBLE else "whole number"
    if kind.most in (INT_MAX, LONG_MAX):
        return f"{name} from {kind.least}"
    return f"{name} from {kind.least} to {kind.most}"


def _in_words(key: str, value: Value) -> str:
    """As it is written, with a reading aid for long times and sizes."""
    if value is None:
        return "none"
    if value in (INT_MAX, LONG_MAX):
        return "no limit"
    text = f"`{text_of(value)}`"
    units = _UNITS_MS if key.endswith("ms") else _UNITS_BYTES if "bytes" in key else ()
    if isinstance(value, int):
        for size, name in units:
            if value >= size and value % size == 0:
                return f"{text} ({value // size} {name if value > size else name.removesuffix('s')})"
    return text
