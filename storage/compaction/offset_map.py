"""Offset map of a round of the log cleaner: the last offset of each key, in a fixed amount of memory.

Keys are represented by a keyed 128-bit hash, so that memory does not depend on their size, and a client that does not
know the seed cannot choose keys that are taken for one another. A log with more keys takes several rounds.
"""

from collections.abc import Iterable

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.disk import Bytes


class OffsetMap:
    """Last offset of each key of the records from `start` to `end`."""

    start: int
    end: int
    """Offset up to which all records are in the map: the end of a batch, or within the batch where the map is full."""
    is_full: bool
    """Whether a key did not fit any more. It is that of the record with offset `end`."""

    def __init__(self, bytes_max: int, start: int, limit: int, seed: bytes | None = None) -> None:
        """Take as little memory as `limit - start` keys need, at most `bytes_max`. `seed`: 16 bytes, random if None."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of keys."""
        raise NotImplementedError

    @property
    def utilization(self) -> float:
        """Share of the keys that fit (`max-buffer-utilization-percent`)."""
        raise NotImplementedError

    def get(self, key: bytes) -> int | None:
        """Return the key's last offset; None if the map does not have the key."""
        raise NotImplementedError


class OffsetMapBuilder:
    """The first pass of a round: puts the keys of batches into an OffsetMap, in order of offsets.

    Control batches and aborted transactions have no keys that count.
    """

    def __init__(self, offsets: OffsetMap) -> None:
        raise NotImplementedError

    def expect(self, aborted: Iterable[AbortedRow]) -> None:
        """Add the aborted transactions that overlap the batches to come, in ascending order of their markers.

        Rows may be repeated: call this for each segment with all that overlap it (`AbortedIndex.overlapping` of this
        segment and the later ones).
        """
        raise NotImplementedError

    def add(self, data: Bytes) -> bool:
        """Put whole batches, which the caller has verified, into the map. Return False once it is full.

        Records below `offsets.start` do not count. Raises CorruptBatch.
        """
        raise NotImplementedError
