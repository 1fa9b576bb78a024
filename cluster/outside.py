"""What a broker has of the world beside its event loop: one value, which a process and the simulator each make anew."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.replication.housekeeping import RunBlocking
from cordwood.replication.measures import Clock
from cordwood.replication.syncers import Syncer
from cordwood.storage.disk import Disk


@dataclass(frozen=True, slots=True)
class Outside:
    """Time, timers and network come with the loop that the broker runs on; everything else is here."""

    disk: Disk
    wall_clock: Callable[[], int]
    """Milliseconds since 1970. It may jump."""
    clock: Clock
    """What durations are measured by. Nothing is decided by it: that is the loop's time."""
    rng: random.Random
    run_blocking: RunBlocking
    syncer: Syncer
    hostname: str
    descriptors_max: int
    """How many files and connections the process may have open together."""
    boot_id: str
    """Another one whenever the machine has lost its memory."""
    close: Callable[[], None]
    """Gives back what `run_blocking` and `syncer` hold. The broker's last act."""
