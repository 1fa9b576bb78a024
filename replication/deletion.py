"""Pending DeleteRecords of a partition, completed once the low watermark has passed their offset (KIP-107)."""

from typing import TYPE_CHECKING

from cordwood.replication.waiters import FutureWaiter, OffsetWaiters

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


class Deletion:
    """Record deletion of one replica. Requests wait only on a leader."""

    __slots__ = ("_partition", "waiters")

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self.waiters = OffsetWaiters()

    @property
    def low_watermark(self) -> int:
        """Offset below which no record comes back, whichever in-sync replica leads next (KIP-107)."""
        view, flushed_start = self._partition.view, self._partition.log.flushed_start
        return flushed_start if view is None else view.low_watermark(flushed_start)

    async def reach(self, before: int) -> None:
        """Wait until every in-sync replica has deleted the records below `before`, and no restart brings them back.

        Raises PartitionRefused if the leadership is lost.
        """
        if before > self.low_watermark:
            waiter = FutureWaiter()
            self.waiters.add(before, waiter)
            await waiter.future

    def moved(self) -> None:
        """Complete the waiters up to the low watermark, after a replica has advanced or has left the in-sync set."""
        if self.waiters:
            self.waiters.reached(self.low_watermark)
