"""LRU cache of the open files, loaded indexes and loaded aborted indexes of a broker's sealed segments.

A sealed segment holds neither its file nor its index: the segment asks this cache, which opens or loads what is
missing. So any thread may evict without access to a segment, and a file closes when its last reader drops it. Active
segments hold their own files; these are counted, since they need descriptors too.
"""

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from cordwood.storage.disk import File
from cordwood.storage.index import Index

FILES_MAX = 1024
FILES_MIN = 16
"""Sealed segments that may be open, however many segments are active: each reader needs one."""
INDEX_BYTES_MAX = 64 << 20
INDEXES_MAX = 4096
ABORTED_BYTES_MAX = 16 << 20
"""Of the aborted transactions of sealed segments."""


class OpenSegments:
    """The cache of one broker. Its dictionaries are changed only by single operations, each atomic among threads.

    No operation replaces a value: a replaced file would close within it, and let another thread in.
    """

    __slots__ = ("_aborted", "_active", "_files", "_files_max", "_index_bytes_max", "_indexes")

    def __init__(self, files_max: int = FILES_MAX, index_bytes_max: int = INDEX_BYTES_MAX) -> None:
        """`files_max` counts sealed and active segments, `index_bytes_max` the indexes of sealed ones."""
        self._files_max, self._index_bytes_max = files_max, index_bytes_max
        self._active: dict[Hashable, None] = {}
        self._files: OrderedDict[Hashable, File] = OrderedDict()
        self._indexes: OrderedDict[Hashable, tuple[Index, int]] = OrderedDict()
        self._aborted: OrderedDict[Hashable, bytes] = OrderedDict()

    @property
    def file_count(self) -> int:
        """Descriptors that the cache or active segments hold."""
        return len(self._files) + len(self._active)

    @property
    def index_bytes(self) -> int:
        """Size of the cached indexes in bytes."""
        return sum([size for _, size in list(self._indexes.values())])

    def file_of(self, segment: Hashable) -> File | None:
        file = self._files.get(segment)
        if file is not None:
            with suppress(KeyError):
                self._files.move_to_end(segment)
        return file

    def index_of(self, segment: Hashable) -> Index | None:
        found = self._indexes.get(segment)
        if found is None:
            return None
        with suppress(KeyError):
            self._indexes.move_to_end(segment)
        return found[0]

    def hold_file(self, segment: Hashable, file: File) -> None:
        """Cache a sealed segment's file, and evict the least recently used files if there are too many."""
        self._active.pop(segment, None)
        self._files.setdefault(segment, file)
        self._make_room()

    def hold_index(self, segment: Hashable, index: Index) -> None:
        """Cache a sealed segment's index, and evict the least recently used ones if there are too many or too large."""
        self._indexes.setdefault(segment, (index, index.size))
        while len(self._indexes) > 1 and (self.index_bytes > self._index_bytes_max or len(self._indexes) > INDEXES_MAX):
            _evict(self._indexes)

    def aborted_of(self, index: Hashable) -> bytes | None:
        """Return the cached rows of an aborted index."""
        rows = self._aborted.get(index)
        if rows is not None:
            with suppress(KeyError):
                self._aborted.move_to_end(index)
        return rows

    def hold_aborted(self, index: Hashable, rows: bytes) -> None:
        """Cache the rows of an aborted index, and evict the least recently used ones if there are too many."""
        self._aborted.setdefault(index, rows)
        while len(self._aborted) > 1 and sum(map(len, list(self._aborted.values()))) > ABORTED_BYTES_MAX:
            _evict(self._aborted)

    def forget_aborted(self, index: Hashable) -> None:
        """Remove the rows of an aborted index that was changed or deleted."""
        self._aborted.pop(index, None)

    def opened_active(self, segment: Hashable) -> None:
        """Count the file of an active segment, which the segment itself holds."""
        self._active[segment] = None
        self._make_room()

    def forget(self, segment: Hashable) -> None:
        """Remove a segment that was deleted, or that holds its file and index itself from now on."""
        self._active.pop(segment, None)
        self._files.pop(segment, None)
        self._indexes.pop(segment, None)

    def _make_room(self) -> None:
        while self.file_count > self._files_max and len(self._files) > FILES_MIN:
            _evict(self._files)


def _evict(cache: OrderedDict[Hashable, Any]) -> None:
    """Remove the least recently used entry, unless other threads have removed all of them since they were counted."""
    with suppress(KeyError):
        cache.popitem(last=False)
