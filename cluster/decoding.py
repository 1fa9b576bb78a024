"""Decoding of records beside the event loop, one piece of work at a time, in the order in which it was asked for.

What decodes holds the interpreter: several threads of it would be no faster, keep the loop waiting for longer, and
take the threads from those who wait for a disk.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.tasks import RunBlocking


class Decoding:
    """The queue of one broker."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._turn = asyncio.Lock()
        self._of_directories: dict[LogDirectory, Decoding] = {}

    def of(self, directory: LogDirectory) -> "Decoding":
        """The queue for what reads the directory's disk on its way, and so may take as long as that does."""
        queue = self._of_directories.get(directory)
        if queue is None:
            queue = self._of_directories[directory] = Decoding(directory.run_blocking)
        return queue

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns or raises, once those before it are done."""
        async with self._turn:
            return await self._run_blocking(function, *arguments)
