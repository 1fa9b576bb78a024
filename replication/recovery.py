"""Opening of the logs that a broker finds at its start: beside the loop, in all log directories at the same time.

Only files are read and mended here. Which of the logs this broker still holds, and in which role, is decided once, on
the loop, when all of them are open: whatever became of a partition meanwhile, it is met as by a broker that was down.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Place
from cordwood.replication.replicas import Replicas
from cordwood.storage.config import LogConfig

LOGS_PER_STEP = 16
"""Opened by one piece of work in a thread, unless the broker is to stop."""

Wanted = tuple[Place, LogConfig]


class Recovery:
    """That of one start."""

    def __init__(self, replicas: Replicas, logs_at_once: int) -> None:
        """`logs_at_once` is for each log directory (num.recovery.threads.per.data.dir)."""
        self._replicas, self._logs_at_once = replicas, logs_at_once
        self._is_over = False

    async def run(self, wanted: Iterable[Wanted], now_ms: int) -> None:
        """Open all of these that have something on a disk; `Replicas.open` then finds them open, or why they are not.

        However this ends, nothing is opened or written by it any more: where it is cancelled, as soon as the logs that
        are being opened are open.
        """
        queues: dict[LogDirectory, deque[Wanted]] = {}
        for place, config in wanted:
            home = self._replicas.home_of(place)
            if home is not None:
                queues.setdefault(home, deque()).append((place, config))
        workers = [
            asyncio.ensure_future(self._work(directory, queue, now_ms))
            for directory, queue in queues.items()
            for _ in range(min(self._logs_at_once, len(queue)))
        ]
        if not workers:
            return
        try:
            await asyncio.wait(workers)
        finally:
            self._is_over = True
            while not all(worker.done() for worker in workers):
                await asyncio.wait(workers)
        for worker in workers:
            worker.result()

    async def _work(self, directory: LogDirectory, queue: deque[Wanted], now_ms: int) -> None:
        while queue and not self._is_over:
            some = [queue.popleft() for _ in range(min(LOGS_PER_STEP, len(queue)))]
            await directory.run_blocking(self._open, some, now_ms)

    def _open(self, some: Sequence[Wanted], now_ms: int) -> None:
        """In a thread."""
        for place, config in some:
            if self._is_over:
                return
            self._replicas.recover(place, config, now_ms)
