"""Checks of proposed client quotas: entities, keys and values, with Kafka's sentences (KIP-546)."""

import ipaddress
import math
from collections.abc import Iterable

from cordwood.cluster.metadata.client_quotas import Entity
from cordwood.cluster.quotas.limits import CLIENT_ID, CLIENT_KEYS, INTEGRAL, IP, IP_KEYS, USER

NAME_CHARS_MAX = 1024
LONG_MAX = float((1 << 63) - 1)
_FRACTION = 1e-6
"""A whole number that has passed through a client's arithmetic may differ from it by this much."""


class InvalidQuota(Exception):
    """A quota that no cluster can have. The message is for the client."""


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of these types and names. Raises InvalidQuota."""
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise InvalidQuota(f"Invalid empty client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise InvalidQuota(f"The name of a {kind} has at most {NAME_CHARS_MAX} characters")
        names[kind] = _address(name) if kind == IP and name is not None else name
    if not names or (IP in names and len(names) > 1):
        raise InvalidQuota("Invalid empty client quota entity")
    return tuple(sorted(names.items()))


def checked_value(entity: Entity, key: str, value: float | None) -> float | None:
    """Return the value of a limit, or None to remove it. Raises InvalidQuota."""
    if key not in keys_of(entity):
        raise InvalidQuota(f"Invalid configuration key {key}")
    if value is None:
        return None
    if not 0 < value <= LONG_MAX or math.isnan(value):
        raise InvalidQuota(f"Quota {key} must be greater than 0, and finite")
    if key not in INTEGRAL:
        return value
    if abs(value - round(value)) > _FRACTION or round(value) < 1:
        raise InvalidQuota(f"Configuration {key} must be a Long value")
    return float(round(value))


def keys_of(entity: Entity) -> tuple[str, ...]:
    """Return the limits that an entity may have."""
    return IP_KEYS if entity[0][0] == IP else CLIENT_KEYS


def _address(name: str) -> str:
    """Return an address in the form in which the broker sees those of its clients. Raises InvalidQuota."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        raise InvalidQuota(f"{name} is not a valid IP address.") from None
