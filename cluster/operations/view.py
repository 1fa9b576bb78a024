"""A cluster's state as clients see it: brokers, metadata quorum, partitions and replicas."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogDirectoryInfo:
    """One log directory of a broker. Sizes are in bytes; None if the broker does not report them."""

    path: str
    error: str | None
    usable_bytes: int | None
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One registered broker. `log_directories` is None if the broker did not answer."""

    broker_id: int
    address: str
    rack: str | None
    is_alive: bool
    log_directories: tuple[LogDirectoryInfo, ...] | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The metadata quorum. `log_ends` has the log end offset of each voter and observer."""

    leader: int | None
    epoch: int
    voters: tuple[int, ...]
    log_ends: Mapping[int, int]

    def lag(self, broker_id: int) -> int | None:
        """Return the number of metadata records that a broker lacks; None if it is not known."""
        end = None if self.leader is None else self.log_ends.get(self.leader)
        end_here = self.log_ends.get(broker_id)
        return None if end is None or end_here is None else max(end - end_here, 0)


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica of a partition. `size_bytes` and `lag_records` are None if its broker does not report them."""

    broker_id: int
    is_in_sync: bool
    is_offline: bool
    size_bytes: int | None
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition and its replicas, in order of preference."""

    topic: str
    index: int
    leader: int | None
    replicas: tuple[ReplicaInfo, ...]
    min_isr: int
    removing: int = 0
    """Replicas that a reassignment removes at its end."""

    @property
    def name(self) -> str:
        """Topic and index, such as `topic-0`."""
        return f"{self.topic}-{self.index}"

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync replicas, by broker id."""
        return frozenset(replica.broker_id for replica in self.replicas if replica.is_in_sync)

    @property
    def is_under_replicated(self) -> bool:
        """True if fewer replicas are in sync than there are, or will be after a reassignment."""
        return len(self.isr) < len(self.replicas) - self.removing


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster's state at about one moment."""

    cluster_id: str
    brokers: tuple[BrokerInfo, ...]
    quorum: QuorumInfo
    partitions: tuple[PartitionInfo, ...]

    def broker(self, broker_id: int) -> BrokerInfo | None:
        """Return the registered broker with this id, or None."""
        return next((broker for broker in self.brokers if broker.broker_id == broker_id), None)
