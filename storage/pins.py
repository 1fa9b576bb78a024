"""Pin: the offsets of a partition that cuts need, which retention and the log cleaner leave as they are."""

from typing import NamedTuple

_NO_LIMIT = (1 << 63) - 1


class Pin(NamedTuple):
    """Retention removes nothing at or above `start`; the log cleaner rewrites no segment that begins below `end`.

    With several cuts it is the smallest start and the largest end. The records from `start` up to `end` were decided
    when they were pinned: their transactions have ended, though a marker of one may be above `end`.
    """

    start: int
    end: int

    def with_also(self, start: int, end: int) -> "Pin":
        """Return the pin that keeps these offsets, too."""
        return Pin(min(self.start, start), max(self.end, end))


NOT_PINNED = Pin(_NO_LIMIT, 0)
