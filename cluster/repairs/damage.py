"""Register of damage on this broker's disks, and the rules for dropping and cutting damaged replicas. Pure."""

from dataclasses import dataclass, field, replace
from enum import Enum

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.elections import IsAlive
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage
from cordwood.storage.errors import DamagedLog

KEPT_MAX = 1000
"""Largest number of remembered places. A new place replaces the oldest repaired one; without one it is not noted."""


class DamageState(Enum):
    """The progress of the repair of one damaged place."""

    FOUND = "found"
    UNDER_REPAIR = "under repair"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class DamageStatus:
    """One damaged place. `topic` is "" and `partition` -1 if it belongs to no partition."""

    topic: str
    partition: int
    path: str
    position: int
    what: str
    state: DamageState


@dataclass(slots=True)
class DamageRegister:
    """Damaged places, each once until it is repaired. Later damage at the same place counts again."""

    found: int = 0
    repaired: int = 0
    undecodable: set[tuple[str, int]] = field(default_factory=set)
    """Batches that are as they were written and cannot be decompressed, by file and position."""
    _places: dict[tuple[str, int], DamageStatus] = field(default_factory=dict)

    @property
    def under_repair(self) -> int:
        """Number of places that are found and not repaired yet."""
        return self.found - self.repaired

    def is_open(self, damage: DamagedLog) -> bool:
        """Return True if the place is noted and not repaired yet."""
        known = self._places.get((damage.path, damage.position))
        return known is not None and known.state is not DamageState.REPAIRED

    def note(self, damage: DamagedLog, topic: str = "", partition: int = -1) -> bool:
        """Note a place. Return False if it is noted already, or if KEPT_MAX places wait for their repair."""
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
        """Note a batch that cannot be decompressed. Return False if it is noted already, or if KEPT_MAX batches are."""
        if (path, position) in self.undecodable or len(self.undecodable) >= KEPT_MAX:
            return False
        self.undecodable.add((path, position))
        return True

    def begun(self, damage: DamagedLog) -> None:
        """Mark a place as under repair."""
        self._turn(damage, DamageState.UNDER_REPAIR)

    def done(self, damage: DamagedLog) -> None:
        """Mark a place as repaired."""
        if self._turn(damage, DamageState.REPAIRED):
            self.repaired += 1

    def places(self) -> tuple[DamageStatus, ...]:
        """Return all remembered places, oldest first."""
        return tuple(self._places.values())

    def _turn(self, damage: DamagedLog, state: DamageState) -> bool:
        key = damage.path, damage.position
        known = self._places.get(key)
        if known is None or known.state is DamageState.REPAIRED:
            return False
        self._places[key] = replace(known, state=state)
        return True

    def _forget_one(self) -> bool:
        """Forget the oldest repaired place. Return False if there is none."""
        oldest = next((key for key, known in self._places.items() if known.state is DamageState.REPAIRED), None)
        if oldest is not None:
            del self._places[oldest]
        return oldest is not None


def may_be_dropped(partition: PartitionImage, me: BrokerId, is_alive: IsAlive) -> bool:
    """Return True if a damaged replica is dispensable: a live member of ISR or ELR has all committed records."""
    return me in partition.replicas and any(
        other != me and is_alive(other) for other in (*partition.isr, *partition.elr)
    )


def is_counted_on(partition: PartitionImage, me: BrokerId) -> bool:
    """Return True if this broker's replica leads, is in the ISR, or is in the ELR (eligible leader replicas)."""
    return me == partition.leader or me in partition.isr or me in partition.elr


def may_be_cut(partition: PartitionImage, me: BrokerId, found_in_epoch: int) -> bool:
    """Return True if a damaged replica may cut records: another one leads, and this one is in neither ISR nor ELR.

    The leader epoch must be newer than the damage: a new epoch's leader has no earlier flushed end of this replica.
    """
    return (
        partition.leader != NO_LEADER and partition.leader_epoch > found_in_epoch and not is_counted_on(partition, me)
    )
