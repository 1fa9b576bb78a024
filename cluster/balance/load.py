"""The load of a cluster, from which a balance is planned: brokers with rack and room, and partitions with sizes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Replicas = tuple[int, ...]
"""Broker ids; the first one is the preferred leader."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A registered broker. `room_bytes` is what new replicas may use of its disks; None if it is not known."""

    broker_id: int
    rack: str | None = None
    is_alive: bool = True
    is_cordoned: bool = False
    room_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition. `replicas` are those that it has after a reassignment in progress.

    `bytes_in` is the rate at which its leader is written to, and `bytes_out` the rate at which it is read from, by
    followers too. Both are per second.
    """

    topic: str
    index: int
    replicas: Replicas
    leader: int | None = None
    size_bytes: int = 0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    is_moving: bool = False

    @property
    def name(self) -> str:
        """Topic and index, such as `topic-0`."""
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The brokers and partitions of a cluster at about one moment."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]

    def broker(self, broker_id: int) -> BrokerLoad | None:
        """Return the registered broker with this id, or None."""
        return next((broker for broker in self.brokers if broker.broker_id == broker_id), None)


def racks_of(brokers: Iterable[BrokerLoad]) -> Mapping[int, str]:
    """Return each broker's rack; if a broker that is alive has none, each broker counts as its own rack."""
    brokers = tuple(brokers)
    if all(broker.rack is not None for broker in brokers if broker.is_alive):
        return {broker.broker_id: broker.rack or str(broker.broker_id) for broker in brokers}
    return {broker.broker_id: str(broker.broker_id) for broker in brokers}
