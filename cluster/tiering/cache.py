"""Disk cache of chunks that were read from the archive, of all log directories together. The least recently used go.

A chunk is in the log directory of its partition, so that a slow disk delays only its own partitions. A reader that has
begun with a chunk continues after its removal: the chunk holds its file.
"""

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.tiering.chunks import CachedChunk, WrittenChunk
from cordwood.replication.log_directory import LogDirectory
from cordwood.storage.errors import NotInMemory

OPEN_MAX = 64
"""Chunks that are held open for their next reader."""


class ChunkKey(NamedTuple):
    """An archived segment, and the number of a chunk in it."""

    segment_id: UUID
    number: int


class CacheEntry(NamedTuple):
    """A chunk on disk, in the cache directory of a log directory."""

    written: WrittenChunk
    directory: LogDirectory


class ChunkCache:
    """The cache of one broker. Only the event loop adds and removes chunks; threads may open them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._entries: OrderedDict[ChunkKey, CacheEntry] = OrderedDict()
        self._open: OrderedDict[Hashable, CachedChunk] = OrderedDict()

    def __contains__(self, key: ChunkKey) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def use(self, key: ChunkKey) -> None:
        """Record that a chunk is read, so that it is removed later than others."""
        if key in self._entries:
            self._entries.move_to_end(key)

    def get(self, key: ChunkKey, *, wait: bool) -> CachedChunk | None:
        """Return a chunk; None if it is not cached.

        Raises NotInMemory if its file would have to be opened and `wait` is off; otherwise OSError and DamagedLog.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        chunk = self._open.get(key)
        if chunk is None:
            if not wait:
                raise NotInMemory
            chunk = self._hold(key, entry.written.open())
        return chunk

    def add(self, key: ChunkKey, entry: CacheEntry, opened: CachedChunk) -> list[CacheEntry]:
        """Add a chunk, and remove others if there is no room. Return those: the caller deletes their files.

        The chunk itself stays even if it is larger than the cache: its reader needs it.
        """
        assert key not in self._entries, "a chunk is downloaded once"
        gone = []
        while self._entries and self.bytes_used + entry.written.size > self.bytes_max:
            gone += self.remove(next(iter(self._entries)))
        self._entries[key] = entry
        self.bytes_used += entry.written.size
        self._hold(key, opened)
        return gone

    def remove(self, key: ChunkKey) -> list[CacheEntry]:
        """Remove a chunk. Return the chunk, for the caller to delete its file; nothing if it is not cached."""
        entry = self._entries.pop(key, None)
        self._open.pop(key, None)
        if entry is None:
            return []
        self.bytes_used -= entry.written.size
        return [entry]

    def _hold(self, key: ChunkKey, chunk: CachedChunk) -> CachedChunk:
        """Hold a chunk open, and let go of those that were not used for the longest time."""
        chunk = self._open.setdefault(key, chunk)
        with suppress(KeyError):
            self._open.move_to_end(key)
            while len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
        return chunk
