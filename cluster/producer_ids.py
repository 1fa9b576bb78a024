"""Producer ids for this broker to hand out, taken from the cluster in blocks (KIP-730)."""

import asyncio

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.commands import AllocateProducerIds, BrokerId
from cordwood.cluster.metadata.image import CommandRefused
from cordwood.cluster.metadata.quorum import Quorum

BLOCK = 1000


class ProducerIds:
    """Numbers that no other producer of the cluster has ever been given."""

    def __init__(self, quorum: Quorum, broker_id: BrokerId) -> None:
        self._quorum, self._broker_id = quorum, broker_id
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """The next id, from a new block where the last is used up. What a restart leaves of a block is never used."""
        async with self._lock:
            if self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> None:
        while True:
            start = self._quorum.image.next_producer_id
            try:
                await self._quorum.propose(AllocateProducerIds(self._broker_id, start, BLOCK))
            except CommandRefused as refused:
                if refused.code != ErrorCode.invalid_update_version:
                    raise
                # Another broker was quicker: its block is not ours.
                continue
            self._next, self._end = start, start + BLOCK
            return
