"""Damaged intervals of a segment: a read ends before the first one."""

from cordwood.storage.errors import DamagedLog
from cordwood.storage.index import Interval


class DamagedIntervals:
    """Damaged intervals that reads of one segment have found. They are few, so the search is linear."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: list[Interval] = []

    def add(self, interval: Interval) -> None:
        if interval not in self._intervals:
            self._intervals.append(interval)

    def forget(self, position: int) -> None:
        """Remove the interval at `position`, which has been read without an error since."""
        self._intervals = [known for known in self._intervals if not known.position <= position < known.end]

    def truncate(self, position: int) -> None:
        """Remove the intervals that reach past `position`, where the segment is truncated."""
        self._intervals = [known for known in self._intervals if known.end <= position]

    def intact_end(self, path: str, start: int, stop: int) -> int:
        """Return the end of the undamaged part of a read. Raises DamagedLog if the read begins in damage."""
        for known in self._intervals:
            if known.position <= start < known.end:
                raise DamagedLog(path, known.position, f"the {known.size} bytes from this position on are damaged")
            if start < known.position < stop:
                stop = known.position
        return stop
