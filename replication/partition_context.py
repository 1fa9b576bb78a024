"""Broker-wide dependencies shared by all partitions: broker id, clock, end-of-tick scheduler, callbacks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordwood.replication.archive_view import ArchiveView, NoArchive
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog
from cordwood.storage.open_segments import OpenSegments

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """Dependencies shared by all partitions of one broker."""

    broker_id: int
    end_of_tick: EndOfTickScheduler
    now: Callable[[], float]
    """The event loop's time in seconds."""
    lag_max_s: float
    wants_isr_change: Callable[["Partition"], None]
    """Callback for a partition whose leader wants to propose another in-sync set."""
    found_damage: Callable[["Partition", DamagedLog], None]
    """Callback for batches of a partition that differ from what was written."""
    start_moved: Callable[["Partition"], None]
    """Callback for a replica whose log start offset must be on disk soon: its leader waits for that."""
    partition_failed: Callable[["Partition"], None]
    """Callback for a replica that serves nothing any more: another broker has to lead it."""
    open_segments: OpenSegments = field(default_factory=OpenSegments)
    archive: ArchiveView = field(default_factory=NoArchive)
    lead_after_archive: Callable[["Partition"], None] = lambda _: None
    """Callback for a replica that leads as soon as its log has everything that is archived (`ArchivedLeaders`)."""
