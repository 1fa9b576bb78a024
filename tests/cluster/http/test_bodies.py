"""Bodies of HTTP requests: what receiving one costs others."""

import asyncio
from unittest.mock import Mock

from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from cordwood.cluster.http.bodies import PIECE_BYTES, Bodies
from cordwood.cluster.resources.memory import MemoryPool

CHUNKS = 10 * PIECE_BYTES


def test_a_body_in_chunks_of_a_byte_lets_others_in() -> None:
    asyncio.run(_receive_in_chunks_of_a_byte())


async def _receive_in_chunks_of_a_byte() -> None:
    content = StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
    for _ in range(CHUNKS):
        content.feed_data(b"x")
    content.feed_eof()
    pool, turns = MemoryPool("bodies", 1 << 20), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    async with Bodies(pool).read(make_mocked_request("POST", "/", payload=content)) as body:
        assert body == b"x" * CHUNKS
        assert pool.used == CHUNKS
    others.cancel()
    assert turns >= CHUNKS // PIECE_BYTES
    assert pool.used == 0
