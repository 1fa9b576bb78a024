"""What the cluster has agreed on about one partition, as its replicas need it."""

from typing import NamedTuple

NO_LEADER = -1


class Assignment(NamedTuple):
    """Who holds a partition, who of them is in sync, and who leads it since which epoch.

    `isr` is committed: the metadata log has it. `min_isr` is how many members it must have to commit anything.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int
