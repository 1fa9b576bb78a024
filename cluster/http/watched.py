"""What HTTP tells of: the live parts of this broker, looked at when somebody asks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.cluster.damage import DamageRegister
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.http.pauses import Pauses
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.memory import Memory
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.metadata_events import MetadataEventLog
from cordwood.cluster.watchdog import Watchdog
from cordwood.replication.flusher import FlushMeasures
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import FollowerStatus, Partition
from cordwood.replication.replicas import Replicas


class Room(NamedTuple):
    """Of the file system that a log directory is on, as far as its user may fill it."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A broker, from its first turn to its last."""

    broker_id: BrokerId
    quorum: Quorum
    replicas: Replicas
    damage: DamageRegister
    why_not_ready: Callable[[], str | None]
    """In a sentence why clients are not well served here; None where they are."""
    connection_count: Callable[[], int]
    """Clients and other brokers that speak Kafka with this one."""
    groups: GroupCoordinator
    requests: RequestMeasures
    flushes: FlushMeasures
    event_log: MetadataEventLog
    metadata_files: FileMeasures | None
    """None where this broker is no voter."""
    pauses: Pauses
    watchdog: Watchdog
    memory: Memory

    def led(self) -> Iterator[Partition]:
        """The partitions that this broker leads and can serve."""
        return (partition for partition in self.replicas if partition.is_leader and not partition.is_offline)


def lag_records(partition: Partition, follower: FollowerStatus) -> int:
    """What a follower lacks on its disk of its leader's log; all of it where it has not been heard of in this epoch."""
    return partition.log.log_end - max(follower.flushed_end, partition.log.log_start)


def room_of(directory: LogDirectory) -> Room | None:
    """None where nobody can tell. A disk that has failed is not asked."""
    if directory.is_offline:
        return None
    disk, path = directory.disk, directory.path
    try:
        return Room(disk.free_bytes(path), disk.total_bytes(path))
    except OSError:
        return None
