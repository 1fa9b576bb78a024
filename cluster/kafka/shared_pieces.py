"""The last short slice that was read, shared by all fetches of one event-loop iteration."""

import asyncio

from cordwood.storage.errors import NotInMemory, StorageError
from cordwood.storage.segment import Segment
from cordwood.storage.slices import Slice


class Shared:
    """Cache of one slice.

    It is cleared after the iteration: the log may be truncated, and other records written at the same place.
    """

    def __init__(self) -> None:
        self._place: tuple[Segment, int, int] | None = None
        self._piece = b""

    def read(self, found: Slice) -> bytes | None:
        """Return the bytes of a slice; None if they are to be read while they are sent."""
        place = (found.segment, found.start, found.stop)
        if self._place == place:
            return self._piece
        try:
            piece = bytes(found.segment.read(found.start, found.stop, wait=False))
        except (NotInMemory, StorageError):
            return None
        if self._place is None:
            asyncio.get_running_loop().call_soon(self._forget)
        self._place, self._piece = place, piece
        return piece

    def _forget(self) -> None:
        self._place, self._piece = None, b""
