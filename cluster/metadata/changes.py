"""What became of partitions from one image to the next, and why another broker leads one. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage, changed_topics


class Cause(Enum):
    """Why a partition has another leader than before."""

    RETURN = "return"
    """Nobody could lead it, and now somebody can."""
    FAILURE = "failure"
    """The one before is fenced, or no longer in the cluster."""
    SHUTDOWN = "shutdown"
    """The one before is about to stop."""
    CHOICE = "choice"
    """The one before could have gone on: the partition was moved, or went to its preferred leader."""
    UNCLEAN = "unclean"
    """Nobody could lead it, and an operator had a replica do so that may lack committed records."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition as it was and as it is."""

    topic: str
    index: int
    before: PartitionImage
    after: PartitionImage

    @property
    def has_new_leader(self) -> bool:
        """Whether another broker leads it, or none."""
        return self.before.leader != self.after.leader


def changed_partitions(old: Image, new: Image) -> Iterator[PartitionChange]:
    """Those that are in both images and differ. Looks at each topic, and at each partition of one that changed."""
    for before, after in changed_topics(old, new):
        if before is not None and after is not None:
            for index, (was, now) in enumerate(zip(before.partitions, after.partitions, strict=False)):
                if now is not was:
                    yield PartitionChange(after.name, index, was, now)


def cause_of(change: PartitionChange, new: Image) -> Cause:
    """Why the partition, which has a new leader, was not left with the one before."""
    before, leader = change.before, change.after.leader
    assert change.has_new_leader, "there was an election"
    assert leader != NO_LEADER, "somebody was elected"
    if before.leader == NO_LEADER:
        return Cause.RETURN if leader in (*before.isr, *before.elr) else Cause.UNCLEAN
    broker = new.brokers.get(before.leader)
    if broker is None or broker.is_fenced:
        return Cause.FAILURE
    return Cause.SHUTDOWN if broker.is_shutting_down else Cause.CHOICE
