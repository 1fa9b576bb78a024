"""Deadlines by key, in a heap. Pure: times are integers of any clock.

A deadline that moves later costs one dict write: the heap keeps its entry, which is moved when it comes to the top.
So a heartbeat costs the same in a group of any size. If many entries at the top are to be moved at once, as after a
rebalance in which all members have sent something, the heap is rebuilt instead, in a tenth of the time.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

STALE_MAX = 64
"""Smallest number of stale entries for which the heap is rebuilt."""
MOVED_MAX = 64
"""Maximum number of entries that `next` moves or removes one by one."""

_Key = TypeVar("_Key", bound=Hashable)


class Deadlines(Generic[_Key]):
    """At most one deadline for each key."""

    __slots__ = ("_at", "_entries", "_entry_of", "_number")

    def __init__(self) -> None:
        self._at: dict[_Key, int] = {}
        self._entries: list[tuple[int, int, _Key]] = []
        """Times, numbers that order equal times by their arrival, and keys."""
        self._entry_of: dict[_Key, tuple[int, int, _Key]] = {}
        """The one entry of each key, at or before its deadline. All others are stale."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: _Key) -> bool:
        return key in self._at

    def at(self, key: _Key) -> int | None:
        """Return the deadline of a key, or None."""
        return self._at.get(key)

    def put(self, key: _Key, at: int) -> None:
        """Set the deadline of a key, in place of an earlier one."""
        self._at[key] = at
        entry = self._entry_of.get(key)
        if entry is None or at < entry[0]:
            self._push(key, at)

    def remove(self, key: _Key) -> None:
        """Remove the deadline of a key, if it has one."""
        if self._at.pop(key, None) is not None:
            del self._entry_of[key]
            self._drop_stale()

    def next(self) -> int | None:
        """Return the earliest deadline, or None."""
        moved = 0
        while self._entries:
            first = self._entries[0]
            key = first[2]
            moved += 1
            if moved > MOVED_MAX:
                self._rebuild()
                moved = 0
            elif self._entry_of.get(key) is not first:
                heapq.heappop(self._entries)
            elif (at := self._at[key]) == first[0]:
                return at
            else:
                heapq.heappop(self._entries)
                self._push(key, at)
        return None

    def take_due(self, now: int) -> Iterator[_Key]:
        """Remove and yield the keys whose deadlines have passed, the earliest first. Deadlines may change meanwhile."""
        while (at := self.next()) is not None and at <= now:
            _, _, key = heapq.heappop(self._entries)
            del self._at[key], self._entry_of[key]
            yield key

    def _push(self, key: _Key, at: int) -> None:
        self._number += 1
        entry = self._entry_of[key] = (at, self._number, key)
        heapq.heappush(self._entries, entry)
        self._drop_stale()

    def _drop_stale(self) -> None:
        """Rebuild the heap when most entries are stale, so that the number of keys bounds its size."""
        if len(self._entries) > 2 * len(self._at) + STALE_MAX:
            self._entries = list(self._entry_of.values())
            heapq.heapify(self._entries)

    def _rebuild(self) -> None:
        """Give every key an entry at its deadline, and no other."""
        begin, self._number = self._number + 1, self._number + len(self._at)
        self._entry_of = {key: (at, number, key) for number, (key, at) in enumerate(self._at.items(), begin)}
        self._entries = list(self._entry_of.values())
        heapq.heapify(self._entries)
