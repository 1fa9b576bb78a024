"""HTTP clients that are disconnected when the pool of unread responses is full."""

import asyncio
from typing import Any, cast

from cordwood.chaos.sim.loop import run
from cordwood.cluster.http.readers import STALLED_AFTER_S, Readers
from cordwood.cluster.resources.memory import MemoryPool

LIMIT = 64 << 10


class Client:
    """A connection and its transport with a number of unsent bytes."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes, self.is_cut_off = unsent_bytes, False
        self.transport = self

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.unsent_bytes, self.is_cut_off = 0, True


def test_who_leaves_little_for_long_is_not_cut_off_for_those_that_leave_much() -> None:
    async def story() -> None:
        slow, hogs = Client(1000), [Client(LIMIT // 2), Client(LIMIT // 2)]
        clients = [slow]
        pool = MemoryPool("http_unsent", LIMIT)
        readers = Readers(lambda: cast(Any, clients), pool)
        readers.check()
        await asyncio.sleep(STALLED_AFTER_S / 2)
        clients += hogs
        readers.check()
        assert [client.is_cut_off for client in clients] == [False, True, False]
        await asyncio.sleep(STALLED_AFTER_S / 2 + 1)
        readers.check()
        assert [client.is_cut_off for client in clients] == [True, True, False], "no client waits for ever"

    run(story())
