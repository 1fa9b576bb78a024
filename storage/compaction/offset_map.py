"""Offset map of a round of the log cleaner: the last offset of each key, in a fixed amount of memory.

Keys are represented by a keyed 128-bit hash, so that memory does not depend on their size, and a client that does not
know the seed cannot choose keys that are taken for one another. A log with more keys takes several rounds.
"""

from collections.abc import Iterable

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import CODEC_MASK
from cordwood.storage.compaction.aborted import ExpectedAborted
from cordwood.storage.compaction.in_python import PythonTable
from cordwood.storage.compaction.rebuilt import unpacked, whole_batch_at
from cordwood.storage.compaction.rules import OTHER_KINDS, KeyTable
from cordwood.storage.disk import Bytes

try:
    from cordwood.storage.compaction.native import NativeTable

    IS_NATIVE = True
except ImportError:
    IS_NATIVE = False

SEED_BYTES = 16


class OffsetMap:
    """Last offset of each key of the records from `start` to `end`."""

    def __init__(self, bytes_max: int, start: int, limit: int, seed: bytes, *, is_native: bool = IS_NATIVE) -> None:
        """Take as little memory as `limit - start` keys need, at most `bytes_max`. `seed`: 16 bytes."""
        self.start = start
        make: type[NativeTable | PythonTable] = NativeTable if is_native else PythonTable
        self.table: KeyTable = make(bytes_max, start, limit, seed)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.table)

    @property
    def end(self) -> int:
        """Offset up to which all records are in the map: the end of a batch, or within the batch that did not fit."""
        return self.table.end

    @property
    def is_full(self) -> bool:
        """Whether a key did not fit any more. It is that of the record with offset `end`."""
        return self.table.is_full

    @property
    def utilization(self) -> float:
        """Share of the keys that fit (`max-buffer-utilization-percent`)."""
        return len(self.table) / self.table.keys_max

    def get(self, key: bytes) -> int | None:
        """Return the key's last offset; None if the map does not have the key."""
        return self.table.get(key)


class OffsetMapBuilder:
    """The first pass of a round: puts the keys of batches into an OffsetMap, in order of offsets.

    Control batches and aborted transactions have no keys that count.
    """

    def __init__(self, offsets: OffsetMap) -> None:
        self._table, self._aborted = offsets.table, ExpectedAborted()

    def expect(self, aborted: Iterable[AbortedRow]) -> None:
        """Add the aborted transactions that overlap the batches to come, in ascending order of their markers.

        Rows may be repeated: call this for each segment with all that overlap it (`AbortedIndex.overlapping` of this
        segment and the later ones).
        """
        self._aborted.expect(aborted)

    def add(self, data: Bytes) -> bool:
        """Put whole batches, which the caller has verified, into the map. Return False once it is full.

        Records below `offsets.start` do not count. Raises CorruptBatch.
        """
        table, position = self._table, 0
        while position < len(data) and not table.is_full:
            header, batch = whole_batch_at(data, position)
            if not header.attributes & OTHER_KINDS:
                position = table.put(data, position)
                continue
            position += header.size
            if header.is_control:
                self._aborted.ended(header)
            if header.is_control or self._aborted.has(header):
                table.end = max(table.end, header.end)
            else:
                table.put_batch(unpacked(header, batch) if header.attributes & CODEC_MASK else batch)
        return not table.is_full
