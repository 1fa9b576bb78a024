"""Pins of this broker's logs, kept in step with the cuts of the metadata image."""

from collections.abc import Mapping
from uuid import UUID

from cordwood.cluster.metadata.cuts import Cut, pins_of
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.storage.pins import NOT_PINNED, Pin


class Pins:
    """The pin of each log. An expired cut pins until the controller has dropped it."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._pins: Mapping[tuple[UUID, int], Pin] = {}

    def follow(self, cuts: Mapping[str, Cut]) -> None:
        """Pin the logs that these cuts need, and no others."""
        before, self._pins = self._pins, pins_of(cuts.values())
        for place in before.keys() | self._pins.keys():
            partition = self._replicas.with_id(*place)
            if partition is not None:
                self.pin(partition)

    def pin(self, partition: Partition) -> None:
        """Pin the log of one replica: before anything else happens to it, if it has just been opened."""
        partition.log.pinned = self._pins.get((partition.topic_id, partition.index), NOT_PINNED)
