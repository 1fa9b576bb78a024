"""Largest rate of a broker's uploads."""

import asyncio


class UploadRate:
    """A rate that all uploads of a broker share. `pace` returns once so many bytes may be sent."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._due = 0.0

    async def pace(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        begin = max(self._due, now)
        self._due = begin + size / self._bytes_per_second
        await asyncio.sleep(max(begin - now, 0))
