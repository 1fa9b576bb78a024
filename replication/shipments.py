"""What a leader sends next from one log, read once for all the followers that want the same."""

from typing import NamedTuple

from cordwood.replication.channel import Chunk
from cordwood.storage.log import Log

SHARED_BYTES_MAX = 8 << 10
"""Larger ones are read by each connection as its follower takes them: sharing them would keep them in memory."""


class Shipment(NamedTuple):
    """Batches from offset `start` to `end`: `size` bytes."""

    start: int
    end: int
    size: int
    chunk: Chunk


class Shipments:
    """The last small shipment of one log waits for the second follower that asks for it."""

    __slots__ = ("_log", "_shared")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._shared: Shipment | None = None

    def take(self, offset: int, bytes_max: int, followers: int) -> Shipment | None:
        """What a follower lacks from `offset` on; None if that is nothing.

        Raises OffsetOutOfRange, DamagedLog, NotInMemory.
        """
        shared, self._shared = self._shared, None
        if shared is not None and shared.start == offset:
            return shared
        found = self._log.ship(offset, bytes_max, wait=False)
        if found is None:
            return None
        stretch, end = found
        size = stretch.size
        if size > SHARED_BYTES_MAX or followers < 2:
            return Shipment(offset, end, size, stretch)
        self._shared = Shipment(offset, end, size, bytes(stretch.next_piece(wait=False)))
        return self._shared

    def warm(self, offset: int, bytes_max: int) -> None:
        """Have in memory what `take` needs: the bytes that it sends first, and the index that proves them.

        Waits for the disk. Raises OffsetOutOfRange, DamagedLog, OSError.
        """
        found = self._log.ship(offset, bytes_max)
        if found is not None:
            found[0].next_piece()

    def forget(self) -> None:
        """The log is no longer led here, and may change."""
        self._shared = None
