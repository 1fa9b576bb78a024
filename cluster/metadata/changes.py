"""Partition changes between two metadata images, and the cause of each leader change. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import compress, count
from operator import is_not

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage, changed_topics


class Cause(Enum):
    """The cause of a leader change."""

    RETURN = "return"
    """The partition had no leader, and an in-sync or eligible replica has returned."""
    FAILURE = "failure"
    """The previous leader is fenced or unregistered."""
    SHUTDOWN = "shutdown"
    """The previous leader is in controlled shutdown."""
    CHOICE = "choice"
    """The previous leader could have stayed: a reassignment or a preferred leader election."""
    UNCLEAN = "unclean"
    """The partition had no leader, and an unclean election chose a replica that may lack committed records."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition before and after."""

    topic: str
    index: int
    before: PartitionImage
    after: PartitionImage

    @property
    def has_new_leader(self) -> bool:
        """True if the partition has another leader, or no leader any more."""
        return self.before.leader != self.after.leader


def changed_partitions(old: Image, new: Image, leader: BrokerId) -> Iterator[PartitionChange]:
    """Yield the changed partitions of topics in both images that `leader` leads, or has led before.

    Compares each partition of a changed topic.
    """
    for before, after in changed_topics(old, new):
        if before is not None and after is not None:
            # No Python bytecode for each partition that is as it was.
            for index in compress(count(), map(is_not, before.partitions, after.partitions)):
                was, now = before.partitions[index], after.partitions[index]
                if now.leader == leader or was.leader == leader:
                    yield PartitionChange(after.name, index, was, now)


def cause_of(change: PartitionChange, new: Image) -> Cause:
    """Return the cause of a leader change. The partition has a leader, and had another one or none before."""
    before, leader = change.before, change.after.leader
    assert change.has_new_leader, "there was an election"
    assert leader != NO_LEADER, "somebody was elected"
    if before.leader == NO_LEADER:
        return Cause.RETURN if leader in (*before.isr, *before.elr) else Cause.UNCLEAN
    broker = new.brokers.get(before.leader)
    if broker is None or broker.is_fenced:
        return Cause.FAILURE
    return Cause.SHUTDOWN if broker.is_shutting_down else Cause.CHOICE
