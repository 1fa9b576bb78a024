"""Histograms for metrics, cheap enough for every request."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

Clock = Callable[[], float]
"""Monotonic time in seconds. Finer than the event loop's time, which uvloop keeps in milliseconds."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bucket bounds for durations."""
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Bucket bounds for counts."""


GATHERED_MAX = 500
"""Numbers sorted into buckets together: that takes a third of the time of one by one."""


class Histogram:
    """Count of numbers per bucket, and their sum. A bound belongs to the bucket below it."""

    __slots__ = ("_counts", "_gathered", "_sum", "bounds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._gathered: list[float] = []

    def add(self, number: float) -> None:
        gathered = self._gathered
        gathered.append(number)
        if len(gathered) == GATHERED_MAX:
            self._sort_in()

    @property
    def sum(self) -> float:
        """Sum of all numbers."""
        self._sort_in()
        return self._sum

    @property
    def count(self) -> int:
        """Count of all numbers."""
        self._sort_in()
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Return each bound with the count of numbers not above it."""
        self._sort_in()
        return zip(self.bounds, accumulate(self._counts), strict=False)

    def _sort_in(self) -> None:
        gathered, self._gathered = sorted(self._gathered), []
        self._sum += sum(gathered)
        begin = 0
        for place, bound in enumerate(self.bounds):
            end = bisect_right(gathered, bound, begin)
            self._counts[place] += end - begin
            begin = end
        self._counts[-1] += len(gathered) - begin
