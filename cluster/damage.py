"""What was found damaged on this broker's disks, what has become of it, and what is to be done about it. Pure."""

from dataclasses import dataclass, field, replace
from enum import Enum

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.elections import IsAlive
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage
from cordwood.storage.errors import DamagedLog

KEPT_MAX = 1000
"""Places that are remembered; their number is counted beyond that."""


class DamageState(Enum):
    """How far the repair of one damaged place has come."""

    FOUND = "found"
    UNDER_REPAIR = "under repair"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class DamageStatus:
    """One damaged place. `topic` is "" and `partition` -1 where it belongs to no partition."""

    topic: str
    partition: int
    path: str
    position: int
    what: str
    state: DamageState


@dataclass(slots=True)
class DamageRegister:
    """Every place once, until it is repaired: if it is damaged again after that, it counts again."""

    found: int = 0
    repaired: int = 0
    undecodable: set[tuple[str, int]] = field(default_factory=set)
    """Batches that are what was written and that cannot be unpacked, by file and byte."""
    _places: dict[tuple[str, int], DamageStatus] = field(default_factory=dict)

    @property
    def under_repair(self) -> int:
        """Places that have been found and are not repaired yet."""
        return self.found - self.repaired

    def is_open(self, damage: DamagedLog) -> bool:
        """Whether the place is known, and not repaired yet."""
        known = self._places.get((damage.path, damage.position))
        return known is not None and known.state is not DamageState.REPAIRED

    def note(self, damage: DamagedLog, topic: str = "", partition: int = -1) -> bool:
        """Remember a place. False where it is known already."""
        key = damage.path, damage.position
        if self.is_open(damage):
            return False
        self._places.pop(key, None)
        if len(self._places) >= KEPT_MAX and not self._forget_one():
            return False
        self.found += 1
        self._places[key] = DamageStatus(topic, partition, *key, damage.what, DamageState.FOUND)
        return True

    def note_undecodable(self, path: str, position: int) -> bool:
        """Remember a batch that cannot be unpacked. False where it is known already, or where too many are."""
        if (path, position) in self.undecodable or len(self.undecodable) >= KEPT_MAX:
            return False
        self.undecodable.add((path, position))
        return True

    def begun(self, damage: DamagedLog) -> None:
        """Its repair is under way."""
        self._turn(damage, DamageState.UNDER_REPAIR)

    def done(self, damage: DamagedLog) -> None:
        """It is repaired."""
        if self._turn(damage, DamageState.REPAIRED):
            self.repaired += 1

    def places(self) -> tuple[DamageStatus, ...]:
        """All that is remembered, oldest first."""
        return tuple(self._places.values())

    def _turn(self, damage: DamagedLog, state: DamageState) -> bool:
        key = damage.path, damage.position
        known = self._places.get(key)
        if known is None or known.state is DamageState.REPAIRED:
            return False
        self._places[key] = replace(known, state=state)
        return True

    def _forget_one(self) -> bool:
        """The oldest that is repaired."""
        oldest = next((key for key, known in self._places.items() if known.state is DamageState.REPAIRED), None)
        if oldest is not None:
            del self._places[oldest]
        return oldest is not None


def may_be_dropped(partition: PartitionImage, me: BrokerId, is_alive: IsAlive) -> bool:
    """Whether a damaged replica is dispensable: somebody else has all that is committed, and can lead."""
    return me in partition.replicas and any(
        other != me and is_alive(other) for other in (*partition.isr, *partition.elr)
    )


def is_counted_on(partition: PartitionImage, me: BrokerId) -> bool:
    """Whether this broker's replica leads, is in sync, or may be elected."""
    return me == partition.leader or me in partition.isr or me in partition.elr


def may_be_cut(partition: PartitionImage, me: BrokerId, found_in_epoch: int) -> bool:
    """Whether a damaged replica may give up records: another leads, and nobody counts on what this one had.

    In an epoch that began after the damage was found, the leader knows nothing yet of how far this replica was.
    """
    return (
        partition.leader != NO_LEADER and partition.leader_epoch > found_in_epoch and not is_counted_on(partition, me)
    )
