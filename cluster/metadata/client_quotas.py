"""Client quotas in the metadata (KIP-546): limits by user, client id and address."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

Entity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of entity type (`user`, `client-id`, `ip`) and name, sorted; None for the default."""


ENTITIES_MAX = 10_000
"""The maximum number of entities with quotas: all of them are in the metadata image of every broker."""


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """One limit of one entity. None removes it."""

    entity: Entity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Set and remove client quotas."""

    KIND: ClassVar[int] = 29
    LEVEL: ClassVar[int] = 2
    alterations: tuple[QuotaAlteration, ...]


def after(
    before: Mapping[Entity, Mapping[str, float]], command: AlterClientQuotas
) -> Mapping[Entity, Mapping[str, float]]:
    """Return all client quotas after the command."""
    quotas = dict(before)
    for change in command.alterations:
        limits = {key: value for key, value in quotas.get(change.entity, {}).items() if key != change.key}
        if change.value is not None:
            limits[change.key] = change.value
        if limits:
            quotas[change.entity] = limits
        else:
            quotas.pop(change.entity, None)
    return quotas
