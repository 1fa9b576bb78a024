"""Which sealed segments of a log keep their descriptor and index in memory: those that were read last."""

from collections.abc import Container

from cordwood.storage.segment import Segment

OPEN_SEALED_SEGMENTS = 8
"""So many, per log; others are opened when read."""


class OpenSegments:
    """The sealed segments of one log that are open, the one read longest ago first."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def note(self, segment: Segment) -> None:
        """The segment is about to be read, or has just been sealed."""
        if segment.is_sealed and not (self._segments and self._segments[-1] is segment):
            self._segments = [*(other for other in self._segments if other is not segment), segment]

    def forget(self, dropped: Container[Segment]) -> None:
        self._segments = [segment for segment in self._segments if segment not in dropped]

    def close_some(self, unsynced: Container[str]) -> None:
        """Close those beyond the limit, but none whose file still has to be synced."""
        while len(self._segments) > OPEN_SEALED_SEGMENTS and self._segments[0].path not in unsynced:
            self._segments.pop(0).release()
