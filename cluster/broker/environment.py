"""A broker's environment besides its event loop, as one value: the process makes a real one, the simulator its own."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.archive.store import ObjectStore
from cordwood.cluster.security.tls_listeners import TlsListeners
from cordwood.replication.measures import Clock
from cordwood.replication.syncers import Syncer
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk

RESERVE = 256
"""Descriptors for metadata, checkpoints, group commit, listeners, HTTP and other brokers; at most a quarter of all."""


@dataclass(frozen=True, slots=True)
class DiskAccess:
    """The syncer and threads of one log directory. Log directories share none, so that a hung disk stops no other."""

    syncer: Syncer
    run_blocking: RunBlocking


@dataclass(frozen=True, slots=True)
class Environment:
    """Disk, clocks, randomness and threads. Timers, the loop's time and the network come with the event loop."""

    disk: Disk
    wall_clock: Callable[[], int]
    """Milliseconds since 1970. The wall clock may jump."""
    clock: Clock
    """Clock for measuring durations. Decisions use the event loop's time."""
    rng: random.Random
    run_blocking: RunBlocking
    """Threads for the metadata, and for blocking work that waits for no log directory's disk."""
    access: Callable[[str], DiskAccess]
    """Factory of one log directory's disk access."""
    hostname: str
    descriptors_max: int
    """Largest number of open file descriptors of the process: files and connections together."""
    boot_id: str
    """Id of the machine's boot; a new one after each loss of its memory."""
    close: Callable[[], None]
    """Cleanup that waits for the threads and closes them: the last call of `Broker.stop`."""
    open_store: Callable[[], ObjectStore] | None = None
    """Factory of the archive's object store; None if the broker has no archive. Raises StoreError."""
    tls: TlsListeners | None = None
    """Certificates and keys; None if no listener may have TLS, as in the simulator."""


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Largest numbers of open segments over all logs, and of accepted client connections."""

    segments: int
    connections: int


def share_out(descriptors_max: int, segments_max: int, connections_max: int) -> DescriptorBudget:
    """Keep a reserve, and give connections at most half of the rest: requests need open segments."""
    rest = descriptors_max - min(RESERVE, descriptors_max // 4)
    connections = min(connections_max, rest // 2)
    return DescriptorBudget(min(segments_max, rest - connections), connections)
