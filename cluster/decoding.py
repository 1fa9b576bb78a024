"""Decoding of records beside the event loop, one piece of work at a time, in the order in which it was asked for.

What decodes holds the interpreter: several threads of it would be no faster, keep the loop waiting for longer, and
take the threads from those who wait for a disk.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from cordwood.replication.housekeeping import RunBlocking


class Decoding:
    """The queue of one broker."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._turn = asyncio.Lock()

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns or raises, once those before it are done."""
        async with self._turn:
            return await self._run_blocking(function, *arguments)
