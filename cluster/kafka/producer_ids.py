"""Producer ids: blocks allocated from the cluster and handed out one by one (KIP-730)."""

import asyncio

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import AllocateProducerIds, BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum, QuorumFailed

BLOCK = 1000


class ProducerIds:
    """Producer ids that are unique in the cluster."""

    def __init__(self, quorum: Quorum, broker_id: BrokerId) -> None:
        self._quorum, self._broker_id = quorum, broker_id
        self._next = self._end = 0
        self._taking: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return the next id, from a new block if the last one is used up. A restart leaves the rest of a block unused.

        Raises Refused(COORDINATOR_LOAD_IN_PROGRESS) if no block is available now, as Kafka does: with another retriable
        code, Java's producer looks for a transaction coordinator that it does not have. Raises CommandRefused if no
        producer ids are left.
        """
        while self._next == self._end:
            await self._more()
        self._next += 1
        return self._next - 1

    async def _more(self) -> None:
        """Wait for a new block. All callers share one attempt, and its failure."""
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
            # The callers get the failure. If all of them were cancelled, as in a shutdown, asyncio must not log it
            # either.
            taking.exception()

    async def _take_block(self) -> None:
        """Allocate a block. Use it only if this proposal is known to have been applied.

        After an unknown outcome the block may belong to another attempt, and is left unused.
        """
        while True:
            start = self._quorum.image.next_producer_id
            try:
                await self._quorum.propose(AllocateProducerIds(self._broker_id, start, BLOCK))
            except CommandRefused as refused:
                if refused.code != ErrorCode.invalid_update_version:
                    raise
                # Another allocation was applied first, possibly an earlier attempt of this broker: do not use that
                # block.
                continue
            self._next, self._end = start, start + BLOCK
            return
