"""What a broker has of the world beside its event loop: one value, which a process and the simulator each make anew."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.replication.measures import Clock
from cordwood.replication.syncers import Syncer
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.disk import Disk


@dataclass(frozen=True, slots=True)
class DiskAccess:
    """How one log directory's disk is waited for. Nothing here is shared with another, which may hang."""

    syncer: Syncer
    run_blocking: RunBlocking


@dataclass(frozen=True, slots=True)
class Environment:
    """Time, timers and network come with the loop that the broker runs on; everything else is here."""

    disk: Disk
    wall_clock: Callable[[], int]
    """Milliseconds since 1970. It may jump."""
    clock: Clock
    """What durations are measured by. Nothing is decided by it: that is the loop's time."""
    rng: random.Random
    run_blocking: RunBlocking
    """For what waits for no log directory's disk, and for the metadata."""
    access: Callable[[str], DiskAccess]
    """Makes a log directory's own way to its disk."""
    hostname: str
    descriptors_max: int
    """How many files and connections the process may have open together."""
    boot_id: str
    """Another one whenever the machine has lost its memory."""
    close: Callable[[], None]
    """Gives back what all of it holds, once nothing runs in a thread any more. The broker's last act."""
