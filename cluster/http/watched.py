"""The live components of a broker that HTTP reads for metrics, status and the API."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.http.queues.measures import QueueMeasures
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.watchdog import Watchdog
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.events import MetadataEventLog
from cordwood.cluster.metadata.file_measures import FileMeasures
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.audit.log import NO_AUDIT, AuditLog, NoAudit
from cordwood.cluster.share.share_partitions import SharePartitions
from cordwood.cluster.telemetry.client_telemetry import ClientTelemetry
from cordwood.cluster.tiering.archiver import Archiver
from cordwood.cluster.transactions.coordinator import TransactionCoordinator
from cordwood.replication.flusher import FlushMeasures
from cordwood.replication.leader_role import FollowerStatus, LeaderRole
from cordwood.replication.log_cleaner import CleanerMeasures
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.measures import SECONDS, Clock, Histogram
from cordwood.replication.replicas import Replicas
from cordwood.replication.throttle import ReplicationThrottle


class Pauses:
    """The garbage collector's pauses of the process between `start` and `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.collections_s = Histogram(SECONDS)
        self._clock = clock
        self._collection_began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: Literal["start", "stop"], _info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = self._clock()
        else:
            self.collections_s.add(self._clock() - self._collection_began)


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
    transactions: TransactionCoordinator
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
    wall_clock: Callable[[], int]
    """Milliseconds since 1970."""
    log_cleaner: CleanerMeasures
    telemetry: ClientTelemetry
    audit: AuditLog | NoAudit = NO_AUDIT
    archiving: Archiver | None = None
    share: SharePartitions | None = None
    queues: QueueMeasures = field(default_factory=QueueMeasures)
    throttle: ReplicationThrottle = field(default_factory=ReplicationThrottle)


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
