"""Loader of a `__consumer_offsets` partition: the newest value of each key, in turns that yield to the event loop."""

import asyncio

from cordwood.cluster.groups.shard import Shard
from cordwood.cluster.groups.topic import OffsetsTopic
from cordwood.storage.batch import CONTROL, check, split
from cordwood.storage.records import decode

TURN_S = 0.004
"""Seconds of loading after which the event loop gets a turn."""


async def load(topic: OffsetsTopic, shard: Shard, end: int) -> None:
    """Fill the shard from the records below `end`. Raises Refused, also if the leadership ends, and StorageError."""
    loop = asyncio.get_running_loop()
    turn = _Turn(loop)
    newest: dict[bytes, bytes] = {}
    offset = topic.bounds(shard.leadership).start
    while offset < end:
        data = await topic.read(shard.leadership, offset)
        if not data:
            break
        for batch in split(data):
            offset = max(offset, _take_newest(batch, offset, newest))
            await turn.maybe_end()
    for _ in shard.restore(newest.items()):
        await turn.maybe_end()
    shard.begin_sessions(round(loop.time() * 1000))


class _Turn:
    """A turn of the loader, which yields to the event loop every few milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._until = loop, loop.time() + TURN_S

    async def maybe_end(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + TURN_S


def _take_newest(batch: bytes, offset: int, newest: dict[bytes, bytes]) -> int:
    """Apply the records from `offset` on to `newest`. Return the offset of the next batch."""
    header = check(batch)
    if not header.attributes & CONTROL:
        for record in decode(batch):
            if record.key is None or record.offset < offset:
                continue
            if record.value is None:
                newest.pop(record.key, None)
            else:
                newest[record.key] = record.value
    return header.end
