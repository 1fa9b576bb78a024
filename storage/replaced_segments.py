"""Replaced segments of a log: rewritten ones have taken their place, and their files are still there.

Open slices still read them, and a restart uses them as long as no manifest on disk lists the rewritten ones.
"""

from collections.abc import Iterable, Sequence

from cordwood.storage.segment import Segment


class ReplacedSegments:
    """Replaced segments of one log, and the names that its new segments may have."""

    __slots__ = ("_segments", "least_generation", "new_names")

    def __init__(self) -> None:
        self._segments: tuple[Segment, ...] = ()
        self.new_names: tuple[str, ...] = ()
        """Paths of rewritten segments: their directory has to be synced before a manifest lists them."""
        self.least_generation = 0
        """Least generation of new segments: files that are being removed may have the names of lower ones."""

    def add(self, segments: Sequence[Segment], rewritten: Segment) -> None:
        """Add segments that a rewritten one, whose files have just got their names, has replaced."""
        self._segments = (*self._segments, *segments)
        self.new_names = (*self.new_names, rewritten.path)

    def synced(self, names: Sequence[str]) -> None:
        """Record that these of the new names are on disk."""
        self.new_names = tuple([name for name in self.new_names if name not in names])

    def take(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return and forget those of the segments that still have files: the caller deletes them."""
        taken = [segment for segment in segments if segment in self._segments]
        self._segments = tuple([segment for segment in self._segments if segment not in taken])
        return taken

    def truncated(self, segments: Iterable[Segment], end: int) -> list[Segment]:
        """Return those with truncated offsets, from `end` on: the caller removes them, and then takes them.

        `segments` are those of the log before the truncation. New segments get names that none of all these has.
        """
        newest = max([segment.generation for segment in (*segments, *self._segments)], default=0)
        if newest:
            self.least_generation = max(self.least_generation, newest + 1)
        return [segment for segment in self._segments if segment.end_offset > end]
