"""Producer ids for this broker to hand out, taken from the cluster in blocks (KIP-730)."""

import asyncio

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.call import Refused
from cordwood.cluster.metadata.commands import AllocateProducerIds, BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed

BLOCK = 1000


class ProducerIds:
    """Numbers that no other producer of the cluster has ever been given."""

    def __init__(self, quorum: Quorum, broker_id: BrokerId) -> None:
        self._quorum, self._broker_id = quorum, broker_id
        self._next = self._end = 0
        self._taking: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """The next id, from a new block where the last is used up. What a restart leaves of a block is never used.

        Raises Refused(COORDINATOR_LOAD_IN_PROGRESS) where no block is to be had now, as Kafka does: the other codes
        that stand for "later" have Java's producer look for the coordinator of a transaction that it does not have.
        """
        while self._next == self._end:
            await self._more()
        self._next += 1
        return self._next - 1

    async def _more(self) -> None:
        """Everyone who waits shares one attempt, and its failure."""
        if self._taking is None:
            self._taking = asyncio.get_running_loop().create_task(self._take_block(), name="producer ids")
            self._taking.add_done_callback(self._taken)
        try:
            await asyncio.shield(self._taking)
        except QuorumFailed as failure:
            raise Refused(ErrorCode.coordinator_load_in_progress, str(failure)) from failure

    def _taken(self, taking: "asyncio.Task[None]") -> None:
        self._taking = None
        if not taking.cancelled():
            # Who waits is told of a failure; where all have gone, as when the broker stops, nobody is to hear of it.
            taking.exception()

    async def _take_block(self) -> None:
        """The block counts only if this very proposal is known to have been applied: one that was lost sight of may
        be another attempt's, and is left alone.
        """
        while True:
            start = self._quorum.image.next_producer_id
            try:
                await self._quorum.propose(AllocateProducerIds(self._broker_id, start, BLOCK))
            except CommandRefused as refused:
                if refused.code != ErrorCode.invalid_update_version:
                    raise
                # Someone was quicker, if only an earlier attempt of ours: that block is not to be used.
                continue
            self._next, self._end = start, start + BLOCK
            return
