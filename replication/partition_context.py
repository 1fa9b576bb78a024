"""What the replicas of one broker share: who they are, and whom they tell."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog
from cordwood.storage.open_segments import OpenSegments

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What the replicas of one broker share."""

    broker_id: int
    end_of_tick: EndOfTickScheduler
    now: Callable[[], float]
    """The loop's time, in seconds."""
    lag_max_s: float
    wants_isr_change: Callable[["Partition"], None]
    """Told of a partition whose leader proposes another in-sync set."""
    found_damage: Callable[["Partition", DamagedLog], None]
    """Told of batches that are not what was written."""
    start_moved: Callable[["Partition"], None]
    """Told of a replica whose log start has to be on disk soon: its leader waits for that."""
    partition_failed: Callable[["Partition"], None]
    """Told of a replica that serves nothing any more: others have to lead it."""
    open_segments: OpenSegments = field(default_factory=OpenSegments)
