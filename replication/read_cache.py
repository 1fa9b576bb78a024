"""Replication read cache of one log: the next batches to push, read once for all followers or not read at all."""

from typing import NamedTuple

from cordwood.replication.channel import Chunk
from cordwood.storage.log import SMALL_BATCH_BYTES, Log

SHARED_BYTES_MAX = SMALL_BATCH_BYTES
"""Larger reads are not shared: each connection reads as its follower keeps up, and no copy stays in memory."""


class CachedBatches(NamedTuple):
    """Batches from offset `start` to `end`: `size` bytes."""

    start: int
    end: int
    size: int
    chunk: Chunk
    may_have_gaps: bool = False
    """Whether compaction may have removed offsets between them."""


class ReplicationReadCache:
    """Cache of the last small read of one log, for the second follower that needs it.

    Small batches are cached when they are appended, so that they are never read back.
    """

    __slots__ = ("_fresh", "_fresh_bytes", "_fresh_end", "_fresh_start", "_log", "_shared")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._shared: CachedBatches | None = None
        self._fresh: list[bytes] = []
        self._fresh_start = self._fresh_end = self._fresh_bytes = 0

    def appended(self, start: int, end: int, batch: bytes) -> None:
        """Cache the bytes of a batch that was appended to the log from offset `start` to `end`."""
        if start != self._fresh_end or self._fresh_bytes + len(batch) > SHARED_BYTES_MAX:
            self._fresh = []
            self._fresh_bytes = 0
        if not self._fresh:
            self._fresh_start = start
        self._fresh.append(batch)
        self._fresh_end = end
        self._fresh_bytes += len(batch)

    def take(self, offset: int, bytes_max: int, followers: int) -> CachedBatches | None:
        """Return the batches that a follower lacks from `offset` on; None if there are none.

        Raises OffsetOutOfRange, DamagedLog, NotInMemory.
        """
        shared, self._shared = self._shared, None
        if shared is not None and shared.start == offset:
            return shared
        if self._fresh and offset == self._fresh_start:
            chunk = b"".join(self._fresh)
            self._fresh, self._fresh_bytes = [], 0
            batches = CachedBatches(offset, self._fresh_end, len(chunk), chunk)
            if followers > 1:
                self._shared = batches
            return batches
        found = self._log.read_for_replication(offset, bytes_max, wait=False)
        if found is None:
            return None
        stretch, end = found
        size, may_have_gaps = stretch.size, stretch.segment.generation > 0
        if size > SHARED_BYTES_MAX or followers < 2:
            return CachedBatches(offset, end, size, stretch, may_have_gaps)
        self._shared = CachedBatches(offset, end, size, bytes(stretch.next_piece(wait=False)), may_have_gaps)
        return self._shared

    def prefetch(self, offset: int, bytes_max: int) -> None:
        """Load what `take` needs into memory: the bytes that are sent first, and the index that verifies them.

        Blocks on the disk. Raises OffsetOutOfRange, DamagedLog, Truncated, OutOfResources, DiskFailed.
        """
        found = self._log.read_for_replication(offset, bytes_max)
        if found is not None:
            found[0].next_piece()
