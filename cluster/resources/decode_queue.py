"""Queue for decoding records in threads, one step of some 10 ms at a time, within a memory pool.

After each step other work has its turn: a batch that takes seconds delays it by one step. Decoding holds the
interpreter: several threads would be no faster, would delay the event loop for longer, and would take threads from work
that waits for a disk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from cordwood.cluster.resources.memory import MemoryPool
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.tasks import RunBlocking
from cordwood.storage.errors import OutOfResources
from cordwood.storage.steps import Steps

SEARCH_BYTES = 16 << 20
"""Memory counted for reading and searching a log. Only batches made for it decompress to more."""
SMALL_BYTES = 2 << 20
"""Work that need not wait in order: it runs in the room that is too little for the first in the queue.

More than that would delay it again and again. It is not the pool's own room, which has to hold SEARCH_BYTES.
"""
RETRY_INTERVAL_S = 0.05
WAIT_S_MAX = 10.0


class DecodeQueue:
    """The decode queue of one broker."""

    def __init__(self, run_blocking: RunBlocking, pool: MemoryPool) -> None:
        self._run_blocking, self._pool = run_blocking, pool
        self._turn, self._large_turn, self._huge_turn = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        # A huge batch waits for the whole of another one: a search that came after it would wait, too, with one order.
        self._of_directories: dict[LogDirectory, DecodeQueue] = {}

    def of(self, directory: LogDirectory) -> "DecodeQueue":
        """Return the queue for work that also reads the directory's disk, and may take as long as that disk does."""
        queue = self._of_directories.get(directory)
        if queue is None:
            queue = self._of_directories[directory] = DecodeQueue(directory.run_blocking, self._pool)
        return queue

    async def run(self, function: Callable[..., Any], *arguments: Any, size: int = SEARCH_BYTES) -> Any:
        """Run the function in a thread, as a single step (`run_steps`)."""
        async with self._large_turn if size > SMALL_BYTES else nullcontext():
            await self._take(size)
            return await self._run(_single(function, arguments), size)

    async def run_steps(self, steps: Steps[Any], size: int = SEARCH_BYTES) -> Any:
        """Run the steps in threads, in turn with other work. Return their result or raise their exception.

        `size` bounds the bytes that they decompress. Large work waits for room in order, and small work goes first
        meanwhile. Raises OutOfResources if there is no room for WAIT_S_MAX.
        """
        if size > SEARCH_BYTES:
            # One at a time, since it holds its memory from step to step: there must be room for other work.
            async with self._huge_turn:
                await self._take(size)
                return await self._run(steps, size)
        async with self._large_turn if size > SMALL_BYTES else nullcontext():
            await self._take(size)
        return await self._run(steps, size)

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Count memory for data that is read to be decoded. Raises OutOfResources as `run_steps`."""
        await self._take(size)
        try:
            yield
        finally:
            self._pool.used -= size

    async def _run(self, steps: Steps[Any], size: int) -> Any:
        try:
            while True:
                async with self._turn:
                    is_over, result = await self._run_blocking(_run_step, steps)
                if is_over:
                    return result
        finally:
            self._pool.used -= size

    async def _take(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + WAIT_S_MAX
        self._pool.waits += not self._pool.has_room(size)
        while not self._pool.has_room(size):
            if loop.time() > give_up_at:
                raise OutOfResources(f"no memory to decompress {size} bytes of records: the pool is full")
            await asyncio.sleep(RETRY_INTERVAL_S)
        self._pool.used += size


def _single(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Steps[Any]:
    yield from ()
    return function(*arguments)


def _run_step(steps: Steps[Any]) -> tuple[bool, Any]:
    """Return whether it was the last step, and the result of all."""
    try:
        next(steps)
    except StopIteration as end:
        return True, end.value
    return False, None
