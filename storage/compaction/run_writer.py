"""Writer of a rewritten segment: batches with gaps between their offsets, an index over them, and a closing batch.

A segment ends with a batch that has its last offset, so that its end is known without a manifest, and a reader that
waits for the offset before the next segment gets there. If that batch was removed, a batch without records, producer
and transaction takes its place: 61 bytes that every client passes over (Kafka's cleaner leaves such batches, too).
"""

import struct
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    headers,
)
from cordwood.storage.disk import Bytes, Disk
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.index import Interval
from cordwood.storage.segment import Segment
from cordwood.storage.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

WRITE_BYTES = 1 << 20
"""Bytes that are written at a time, and read at a time."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_place = struct.Struct(">qi11xi8xq").unpack_from
"""Base offset, length, last offset delta, largest timestamp."""


class RunWriter:
    """Writer of one segment, in a directory for unfinished ones. Blocks on the disk. All methods raise OSError."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        """`segment` is new and empty."""
        self._segment, self._interval_bytes = segment, interval_bytes
        self._pieces: list[Bytes] = []
        self._size = 0
        self._end = segment.base_offset

    @property
    def size(self) -> int:
        """Size of the batches so far in bytes."""
        return self._segment.size + self._size

    def add(self, batches: Bytes) -> None:
        """Append whole batches, perhaps none."""
        if len(batches):
            self._pieces.append(batches)
            self._size += len(batches)
            if self._size >= WRITE_BYTES:
                self._write()

    def finish(self, last: BatchHeader, end: int) -> None:
        """Append a closing batch if one is missing, and sync everything. The segment covers the offsets up to `end`.

        `last` is the last batch of the segments that are replaced.
        """
        self._write()
        if self._end < end:
            self.add(closing_batch(max(last.base_offset, self._end), end, last.leader_epoch))
            self._write()
        segment = self._segment
        segment.end_offset = end
        segment.close_interval()
        segment.seal()
        segment.file.sync()
        segment.save_index(sync=True)

    def _write(self) -> None:
        if not self._pieces:
            return
        data = b"".join(self._pieces)
        intervals, end = intervals_of(data, self._segment.base_offset, self._interval_bytes)
        self._segment.adopt([data], intervals)
        self._end, self._pieces, self._size = end, [], 0


def intervals_of(data: bytes, base_offset: int, interval_bytes: int) -> tuple[list[Interval], int]:
    """Return the index rows of whole batches, with positions from 0 on, and the offset after the last batch."""
    view, found = memoryview(data), list[Interval]()
    position = start = first = end = 0
    latest = NO_TIMESTAMP
    while position < len(data):
        offset, length, last_delta, timestamp = _place(data, position)
        after = position + LENGTH_PREFIX_BYTES + length
        if position == start:
            first = offset
        elif after - start > interval_bytes:
            found.append(Interval(first - base_offset, start, position - start, crc32c(view[start:position]), latest))
            start, first, latest = position, offset, NO_TIMESTAMP
        latest = max(latest, timestamp)
        position, end = after, offset + last_delta + 1
    found.append(Interval(first - base_offset, start, position - start, crc32c(view[start:position]), latest))
    return found, end


def closing_batch(base_offset: int, end: int, leader_epoch: int) -> bytes:
    """Return a batch without records that has the offsets from `base_offset` up to `end`."""
    length, delta = HEADER_BYTES - LENGTH_PREFIX_BYTES, end - base_offset - 1
    times = NO_TIMESTAMP, NO_TIMESTAMP
    producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    batch = bytearray(_HEADER.pack(base_offset, length, leader_epoch, MAGIC, 0, 0, delta, *times, *producer, 0))
    _CRC.pack_into(batch, CRC_COVERS_FROM - _CRC.size, crc32c(batch[CRC_COVERS_FROM:]))
    return bytes(batch)


def write_aborted(disk: Disk, segment: Segment, undecided: int, rows: Sequence[AbortedRow]) -> None:
    """Write the aborted index of a finished segment. Blocks on the disk. Raises OSError.

    `undecided` is the first offset that was undecided at the base offset (`AbortedIndex.undecided`).
    """
    segment.aborted.undecided = undecided
    if rows:
        segment.aborted.replace(rows)
        unsaved = segment.aborted.unsaved(segment.end_offset)
        assert unsaved is not None, "none of the rows is on disk"
        unsaved.write(disk)


def verified(segment: Segment) -> Iterator[int]:
    """Read a finished segment back, and check each batch. Yield the bytes read. Blocks on the disk.

    Raises DamagedLog if it differs from what was written, and CorruptBatch if that was wrong.
    """
    due = segment.base_offset
    for data in pieces_of(segment):
        for header in headers(data):
            if header.base_offset < due:
                raise CorruptBatch(f"offset {header.base_offset} after the rewrite, but at least {due} was expected")
            due = header.end
        yield len(data)
    if due != segment.end_offset:
        raise CorruptBatch(f"the rewritten segment ends at offset {due} instead of {segment.end_offset}")


def pieces_of(segment: Segment, start: int = 0) -> Iterator[Bytes]:
    """Yield the verified batches of a segment from byte `start` on, about WRITE_BYTES at a time. Raises DamagedLog."""
    while start < segment.size:
        end = segment.piece_end(start, segment.size, WRITE_BYTES)
        yield segment.read(start, end)
        start = end
