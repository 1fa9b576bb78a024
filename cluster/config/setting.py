"""One row of the table of settings: key, type, default, documentation; and the units of their defaults."""

from dataclasses import dataclass, field
from typing import Any

from cordwood.cluster.metadata.config_values import Value, ValueType

KIB, MIB = 1 << 10, 1 << 20
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration key: a row of the table."""

    key: str
    type: ValueType
    default: Value
    is_dynamic: bool
    """Whether AlterConfigs may change the key at run time: true of keys that are defaults of topic configs."""
    documentation: str
    is_per_listener: bool = False
    """Whether `listener.name.NAME.KEY` sets the key for one listener."""


def setting(
    default: Value,
    type_: ValueType,
    documentation: str,
    *,
    dynamic: bool = False,
    is_secret: bool = False,
    per_listener: bool = False,
) -> Any:
    """Return the dataclass field of a setting. The value of a secret is never shown."""
    row = (type_, default, dynamic, documentation, per_listener)
    return field(default=default, repr=not is_secret, metadata={"row": row})


def topic_default(default: Value, type_: ValueType, documentation: str) -> Any:
    """Return the field of a setting that is the default of a topic config."""
    return setting(default, type_, documentation, dynamic=True)
