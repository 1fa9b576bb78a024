"""Assignment of a partition as the metadata log has it: replicas, ISR, leader, leader epoch, partition epoch."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordwood.replication.throttle import Charge


class Assignment(NamedTuple):
    """Replicas of a partition, their in-sync set (ISR), the leader and its leader epoch.

    `isr` is committed: the metadata log has it. `min_isr` is the size that the ISR must have to commit anything.
    `removing` is the number of replicas that a reassignment removes at its end. `charges` has those that it adds, with
    the rates that they are charged to.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int
    removing: int = 0
    charges: Mapping[int, Charge] = MappingProxyType({})
