"""The load of a cluster from its metadata and the sizes that its brokers report. Pure."""

from collections.abc import Mapping

from cordwood.cluster.balance.load import BrokerLoad, ClusterLoad, PartitionLoad
from cordwood.cluster.metadata.cordons import is_cordoned
from cordwood.cluster.metadata.elections import is_moving, target_of
from cordwood.cluster.metadata.image import NO_LEADER, Image
from cordwood.storage.steps import Steps

ROOM_KEPT = 0.05
"""The share of a disk that a plan leaves free."""

Sizes = Mapping[tuple[str, int], int]
"""Bytes of each partition's largest replica."""


def load_of(image: Image, sizes: Sizes, rooms: Mapping[int, int | None]) -> Steps[ClusterLoad]:
    """Return the load, in steps. `rooms` has what new replicas may use, by broker."""
    partitions = []
    for _, topic in sorted(image.topics_by_name.items()):
        for index, partition in enumerate(topic.partitions):
            yield
            leader = None if partition.leader == NO_LEADER else int(partition.leader)
            target = tuple(map(int, target_of(partition)))
            size = sizes.get((topic.name, index), 0)
            partitions.append(PartitionLoad(topic.name, index, target, leader, size, is_moving=is_moving(partition)))
    brokers = tuple(
        BrokerLoad(int(broker.id), broker.rack, broker.is_alive, is_cordoned(image, broker), rooms.get(broker.id))
        for _, broker in sorted(image.brokers.items())
    )
    return ClusterLoad(brokers, tuple(partitions))


def room_in(usable_bytes: int, total_bytes: int) -> int:
    """Return what new replicas may use of a disk."""
    return max(int(usable_bytes - ROOM_KEPT * total_bytes), 0)
