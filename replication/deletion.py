"""Pending DeleteRecords of a leader, completed once the low watermark has passed their offset (KIP-107)."""

from cordwood.replication.leader import LeaderView
from cordwood.replication.waiters import FutureWaiter, OffsetWaiters
from cordwood.storage.log import Log


class Deletion:
    """Record deletion of one leader role."""

    __slots__ = ("_log", "_view", "waiters")

    def __init__(self, view: LeaderView, log: Log) -> None:
        self._view, self._log = view, log
        self.waiters = OffsetWaiters()

    @property
    def low_watermark(self) -> int:
        """Offset below which no record comes back, whichever in-sync replica leads next (KIP-107)."""
        return self._view.low_watermark(self._log.flushed_start)

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
        if self.waiters.queue:
            self.waiters.reached(self.low_watermark)
