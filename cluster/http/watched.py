"""The live components of a broker that HTTP reads for metrics, status and the API."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.http.pauses import Pauses
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.watchdog import Watchdog
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.replication.flusher import FlushMeasures
from cordwood.replication.leader_role import FollowerStatus, LeaderRole
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.replicas import Replicas


class Room(NamedTuple):
    """The room of a log directory's file system, as far as the broker's user may fill it."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The components of one running broker."""

    broker_id: BrokerId
    quorum: Quorum
    replicas: Replicas
    damage: DamageRegister
    why_not_ready: Callable[[], str | None]
    """Returns the reason, as a sentence, why this broker does not serve clients well; None if it does."""
    connection_count: Callable[[], int]
    """Returns the number of open Kafka connections, of clients and of other brokers."""
    groups: GroupCoordinator
    requests: RequestMeasures
    flushes: FlushMeasures
    event_log: MetadataEventLog
    metadata_files: FileMeasures | None
    """None if this broker is not a voter."""
    pauses: Pauses
    watchdog: Watchdog
    memory: Memory
    turns: Turns
    """The event-loop time that answers about thousands of partitions share with requests."""


def lag_records(leader: LeaderRole, follower: FollowerStatus) -> int:
    """Return the records that a follower has not on disk; the whole log if it has not reported in this epoch."""
    return leader.log.log_end - max(follower.flushed_end, leader.log.log_start)


def room_of(directory: LogDirectory) -> Room | None:
    """Return the room of a log directory; None if it is offline or the file system cannot be queried."""
    if directory.is_offline:
        return None
    disk, path = directory.disk, directory.path
    try:
        return Room(disk.free_bytes(path), disk.total_bytes(path))
    except OSError:
        return None
