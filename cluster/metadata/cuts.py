"""Cuts: a pinned range of committed offsets for each partition of some topics, by name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from cordwood.storage.pins import NOT_PINNED, Pin


@dataclass(frozen=True, slots=True)
class CutPartition:
    """The offsets of one partition that a cut pins: from `start` up to `end`."""

    topic_id: UUID
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut. Times are ms since 1970."""

    name: str
    created_ms: int
    expires_ms: int
    partitions: tuple[CutPartition, ...]

    def pins(self, topic_id: UUID | None, partition: int) -> bool:
        return any(one.topic_id == topic_id and one.partition == partition for one in self.partitions)


def pins_of(cuts: Iterable[Cut]) -> dict[tuple[UUID, int], Pin]:
    """Return the pin of each partition of the cuts."""
    pins: dict[tuple[UUID, int], Pin] = {}
    for cut in cuts:
        for one in cut.partitions:
            place = one.topic_id, one.partition
            pins[place] = pins.get(place, NOT_PINNED).with_also(one.start, one.end)
    return pins


@dataclass(frozen=True, slots=True)
class CreateCut:
    """Create a cut: the committed records of these partitions, which stay readable until it is dropped or expires.

    Expects that no cut has its name. Times are ms since 1970; -1 for a cut that does not expire.
    """

    KIND: ClassVar[int] = 26
    name: str
    created_ms: int
    expires_ms: int
    partitions: tuple[CutPartition, ...]


@dataclass(frozen=True, slots=True)
class DropCut:
    """Drop a cut, which was created at `created_ms`: a late command cannot drop a newer cut of the same name."""

    KIND: ClassVar[int] = 27
    name: str
    created_ms: int
