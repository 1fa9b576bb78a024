"""Member of a share group: its subscription, its epochs, and the partitions that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

PartitionsById = Mapping[UUID, frozenset[int]]
"""Partitions by topic id, without empty sets. Never changed in place."""

NOTHING: PartitionsById = MappingProxyType({})

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. A change makes a new object."""

    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: PartitionsById = field(default_factory=lambda: NOTHING)
