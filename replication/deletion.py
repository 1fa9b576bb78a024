"""Records that are being deleted from a partition's front (DeleteRecords): who waits until they cannot come back."""

from typing import TYPE_CHECKING

from cordwood.replication.waiters import FutureWaiter, OffsetWaiters

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


class Deletion:
    """Of one replica. Only a leader is waited for."""

    __slots__ = ("_partition", "waiters")

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self.waiters = OffsetWaiters()

    @property
    def low_watermark(self) -> int:
        """No record below it comes back, whoever of the in-sync replicas leads next (KIP-107)."""
        view, saved_start = self._partition.view, self._partition.log.saved_start
        return saved_start if view is None else view.low_watermark(saved_start)

    async def reach(self, before: int) -> None:
        """Wait until every in-sync replica has deleted what is below `before`, and no restart brings it back.

        Raises PartitionRefused where the leadership goes away.
        """
        if before > self.low_watermark:
            waiter = FutureWaiter()
            self.waiters.add(before, waiter)
            await waiter.future

    def moved(self) -> None:
        """A replica has come further, or is no longer waited for."""
        if self.waiters:
            self.waiters.reached(self.low_watermark)
