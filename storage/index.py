"""Sparse index of a segment: position, largest timestamp and checksum of every few KiB of batches.

One row covers an interval of whole batches: at most `index.interval.bytes` of them, or a single larger one. Its CRC-32C
covers the interval as stored on disk, stamped fields included, so a read by the index is also verified (a batch's own
checksum leaves out its offset and epoch).

On disk: a head with the segment's base offset, then blocks of rows, each block with its row count and CRC-32C. Each
checkpoint of the log writes a block; rows that are missing after the last block are rebuilt from the segment. Row:
first offset less the base u32, position u32, bytes u32, CRC-32C u32, max timestamp i64.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from cordwood.storage.disk import Disk, File
from cordwood.storage.errors import DamagedLog, damage_of
from cordwood.storage.row_blocks import block_of, head_of, read_rows

_ROW = struct.Struct(">IIIIq")
_TIMESTAMP = struct.Struct(">16xq")
"""The last field of a row."""
ROW_BYTES = _ROW.size
_MAGIC = b"CWINDEX1"
_first_u32 = struct.Struct(">I").unpack_from


class Interval(NamedTuple):
    """Adjacent whole batches of a segment. `offset` is relative to the segment's base offset."""

    offset: int
    position: int
    size: int
    crc: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """Position after the interval."""
        return self.position + self.size


class Index:
    """Closed intervals of one segment, in order and without gaps from position 0 on."""

    __slots__ = ("_rows", "_saved", "is_outdated")

    def __init__(self) -> None:
        self._rows = bytearray()
        self._saved = 0
        self.is_outdated = False
        """Whether the file has rows of removed batches, which must not be used."""

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def __getitem__(self, row: int) -> Interval:
        return Interval(*_ROW.unpack_from(self._rows, row * ROW_BYTES))

    def __iter__(self) -> Iterator[Interval]:
        return map(Interval._make, _ROW.iter_unpack(bytes(self._rows)))

    @property
    def end(self) -> int:
        """Position after the last closed interval."""
        return self.end_of_row(len(self) - 1)

    def end_of_row(self, row: int) -> int:
        """Return the position after a row; 0 for row -1."""
        return self[row].end if row >= 0 else 0

    @property
    def size(self) -> int:
        """Size of the rows in bytes, as `segment.index.bytes` limits it."""
        return len(self._rows)

    def rows(self, first: int, stop: int) -> "Index":
        """Return a copy of the rows from `first` to `stop`, which later changes do not affect."""
        some = Index()
        some._rows += self._rows[first * ROW_BYTES : stop * ROW_BYTES]
        return some

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> "Index":
        """Return an index that is on no disk yet."""
        index = cls()
        for interval in intervals:
            index.append(interval)
        return index

    def encode(self) -> bytes:
        """Return the rows as `rows_of` reads them."""
        return bytes(self._rows)

    @classmethod
    def decode(cls, rows: bytes) -> "Index":
        """Return the index with the rows of `encode`."""
        index = cls()
        index._rows += rows
        return index

    def append(self, interval: Interval) -> None:
        assert interval.position == self.end, "intervals lie end to end"
        self._rows += _ROW.pack(*interval)

    def row_of_offset(self, offset: int) -> int:
        """Return the last row that begins at or below `offset` (relative to the base offset); -1 if there is none."""
        rows = self._rows
        return bisect_right(range(len(self)), offset, key=lambda row: _first_u32(rows, row * ROW_BYTES)[0]) - 1

    def row_of_position(self, position: int) -> int:
        """Return the row whose interval contains `position`, or the number of rows if none does."""
        if position >= self.end:
            return len(self)
        rows = self._rows
        return bisect_right(range(len(self)), position, key=lambda row: _first_u32(rows, row * ROW_BYTES + 4)[0]) - 1

    def max_timestamp(self) -> int:
        """Return the largest timestamp of all intervals; -1 if there is none. Scans all rows."""
        return max([timestamp for (timestamp,) in _TIMESTAMP.iter_unpack(bytes(self._rows))], default=-1)

    def is_outdated_after(self, position: int) -> bool:
        """Return whether the file has rows of removed batches, or would have after `truncate(position)`."""
        return self.is_outdated or self.row_of_position(position) < self._saved

    def truncate(self, position: int) -> None:
        """Remove every interval that reaches past `position`."""
        keep = self.row_of_position(position)
        del self._rows[keep * ROW_BYTES :]
        if keep < self._saved:
            self.must_be_rewritten()

    def save(self, file: File, base_offset: int) -> None:
        """Write the rows that are not yet on disk as one more block; rewrite the file after a truncation.

        Raises OSError: the file may be incomplete, and the next call rewrites it.
        """
        try:
            self._write(file, base_offset)
        except OSError:
            self.must_be_rewritten()
            raise
        self._saved, self.is_outdated = len(self), False

    def _write(self, file: File, base_offset: int) -> None:
        position = file.size() if self._saved else 0
        if position == 0:
            head = head_of(_MAGIC, base_offset)
            file.truncate(0)
            file.pwrite([head], 0)
            position, self._saved = len(head), 0
        rows = bytes(self._rows[self._saved * ROW_BYTES :])
        if rows:
            file.pwrite([block_of(rows, ROW_BYTES), rows], position)

    def must_be_rewritten(self) -> None:
        """Let the next `save` rewrite the file, which no longer agrees with the rows."""
        self._saved, self.is_outdated = 0, True


def encode_rows(intervals: Iterable[Interval]) -> bytes:
    """Return the rows of an index with these intervals, as `rows_of` reads them."""
    return b"".join([_ROW.pack(*interval) for interval in intervals])


def rows_of(content: bytes) -> list[Interval]:
    """Return encoded rows."""
    return list(map(Interval._make, _ROW.iter_unpack(content)))


class DamagedIntervals:
    """Damaged intervals that reads of one segment have found. They are few, so the search is linear."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: list[Interval] = []

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def add(self, interval: Interval) -> None:
        if interval not in self._intervals:
            self._intervals.append(interval)

    def forget(self, position: int) -> None:
        """Remove the interval at `position`, which has been read without an error since."""
        self._intervals = [known for known in self._intervals if not known.position <= position < known.end]

    def truncate(self, position: int) -> None:
        """Remove the intervals that reach past `position`, where the segment is truncated."""
        self._intervals = [known for known in self._intervals if known.end <= position]

    def intact_end(self, path: str, start: int, stop: int) -> int:
        """Return the end of the undamaged part of a read. Raises DamagedLog if the read begins in damage."""
        for known in self._intervals:
            if known.position <= start < known.end:
                raise DamagedLog(path, known.position, f"the {known.size} bytes from this position on are damaged")
            if start < known.position < stop:
                stop = known.position
        return stop


def empty(disk: Disk, path: str) -> None:
    """Empty an index file, if there is one. Durable on return. Needs no disk space, which may be lacking."""
    if disk.exists(path):
        with closing(disk.open(path)) as file:
            file.truncate(0)
            file.sync()


def read(disk: Disk, path: str, base_offset: int, segment_bytes: int) -> tuple[Index, DamagedLog | None]:
    """Return the sound part of the index file at `path`, and the damage in it.

    The index is empty if there is no file, or if it reaches past the end of its segment. Raises OutOfResources,
    DiskFailed.
    """
    try:
        with closing(disk.open(path)) as file:
            index, damage = load(file, base_offset)
    except FileNotFoundError:
        return Index(), None
    except OSError as error:
        index, damage = Index(), damage_of(error, path, 0)
        index.must_be_rewritten()
    if index.end > segment_bytes:
        damage = DamagedLog(path, 0, "the index extends past the end of its segment")
        index.truncate(0)
    return index, damage


def load(file: File, base_offset: int) -> tuple[Index, DamagedLog | None]:
    """Return the rows of an index file up to the first wrong byte, and the damage found there.

    Later rows are not lost: they are rebuilt from the segment, and the next `save` rewrites the file.
    """
    index = Index()
    rows, damage = read_rows(file, _MAGIC, base_offset, ROW_BYTES)
    index._rows += rows
    if damage is not None and damage.position > 0:
        index.must_be_rewritten()
    else:
        index._saved = len(index)
    return index, damage
