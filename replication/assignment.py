"""Assignment of a partition as the metadata log has it: replicas, ISR, leader, leader epoch, partition epoch."""

from typing import NamedTuple

NO_LEADER = -1


class Assignment(NamedTuple):
    """Replicas of a partition, their in-sync set (ISR), the leader and its leader epoch.

    `isr` is committed: the metadata log has it. `min_isr` is the size that the ISR must have to commit anything.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int
