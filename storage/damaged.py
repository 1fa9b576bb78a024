"""Intervals of a segment that are known to be damaged: reads end in front of them."""

from cordwood.storage.errors import DamagedLog
from cordwood.storage.index import Interval


class DamagedIntervals:
    """Those of one segment that a read has found. A few at most, so they are searched one by one."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: list[Interval] = []

    def add(self, interval: Interval) -> None:
        if interval not in self._intervals:
            self._intervals.append(interval)

    def forget(self, position: int) -> None:
        """What could not be read at `position` has been read since."""
        self._intervals = [known for known in self._intervals if not known.position <= position < known.end]

    def cut(self, position: int) -> None:
        """Nothing of the segment is left from `position` on."""
        self._intervals = [known for known in self._intervals if known.end <= position]

    def sound_end(self, path: str, start: int, stop: int) -> int:
        """Where a read from `start` to `stop` ends that leaves them out. Raises DamagedLog where it begins in one."""
        for known in self._intervals:
            if known.position <= start < known.end:
                raise DamagedLog(path, known.position, f"the {known.size} bytes from here on are damaged")
            if start < known.position < stop:
                stop = known.position
        return stop
