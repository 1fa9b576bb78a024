"""Log recovery at the start of a broker: logs are opened in threads, in all log directories at the same time.

Only files are read and repaired here. Whether this broker still holds a log, and in which role, is decided once, on the
event loop, when all logs are open: a change of a partition meanwhile is handled as after any downtime.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import TopicIdPartition
from cordwood.replication.replicas import Replicas
from cordwood.storage.config import LogConfig

LOGS_PER_STEP = 16
"""Logs that one call in a thread opens, unless the broker is stopping."""

Wanted = tuple[TopicIdPartition, LogConfig]


class Recovery:
    """Log recovery of one start."""

    def __init__(self, replicas: Replicas, logs_at_once: int) -> None:
        """`logs_at_once` is for each log directory (num.recovery.threads.per.data.dir)."""
        self._replicas, self._logs_at_once = replicas, logs_at_once
        self._is_over = False

    async def run(self, wanted: Iterable[Wanted], now_ms: int) -> None:
        """Open all of these logs that have files; `Replicas.open` then finds each of them open, or its error.

        After this method, also after a cancellation, nothing is opened or written: the method waits for the logs that
        are being opened.
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
        """Open some logs, in a thread."""
        for place, config in some:
            if self._is_over:
                return
            self._replicas.recover(place, config, now_ms)
