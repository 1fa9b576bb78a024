"""Cached positions of offsets in a log's segments: readers at the tail continue where the last flush or read ended."""

from cordwood.storage.segment import Segment

CACHED_POSITIONS_MAX = 16


class CachedPositions:
    """Positions of one log. They are dropped when the log is truncated or a segment is replaced."""

    __slots__ = ("_places", "_start_boundary")

    def __init__(self) -> None:
        self._places: dict[int, tuple[Segment, int]] | None = None
        self._start_boundary = (-1, -1)
        """An offset within a batch, and the base offset of that batch."""

    def __len__(self) -> int:
        return 0 if self._places is None else len(self._places)

    def __contains__(self, offset: int) -> bool:
        return self._places is not None and offset in self._places

    def locate(self, segment: Segment, offset: int, *, wait: bool) -> int:
        """Return the position of the batch with `offset` as `Segment.locate`. Raises as that."""
        places = self._places
        place = None if places is None else places.get(offset)
        if place is not None and place[0] is segment:
            return place[1]
        return segment.locate(offset, wait=wait)

    def batch_base(self, segment: Segment, offset: int, *, wait: bool) -> int:
        """Return the base offset of the batch with `offset`. The last result is cached. Raises as `locate`."""
        if self._start_boundary[0] != offset:
            position = self.locate(segment, offset, wait=wait)
            self._start_boundary = offset, segment.header_at(position, wait=wait).base_offset
        return self._start_boundary[1]

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Cache the position of `offset`.

        Only on the event loop, which also truncates: a thread could add a position that no longer exists.
        """
        if (places := self._places) is None:
            places = self._places = {}
        elif len(places) >= CACHED_POSITIONS_MAX:
            oldest, *_ = places
            places.pop(oldest, None)
        places[offset] = (segment, position)

    def clear(self) -> None:
        self._places = None
        self._start_boundary = (-1, -1)
