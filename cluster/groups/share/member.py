"""Member of a share group: its subscription, its epochs, and the partitions that it reads."""

from dataclasses import dataclass, field

from cordwood.cluster.groups.heartbeat import JOIN_EPOCH
from cordwood.cluster.groups.target_assignment import NO_PARTITIONS, Partitions


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
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
