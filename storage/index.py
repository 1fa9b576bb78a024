"""A segment's sparse index: for every few KiB of batches, where they are, how late they are, and their checksum.

One row covers an interval of whole batches: less than `index.interval.bytes` of them, or a single larger one. Its
CRC-32C covers the interval as it lies on disk, stamped fields included, so what is read by the index is also proven
to be what was written (a batch's own checksum leaves out its offset and epoch).

On disk: a head with the segment's base offset, then blocks of rows, each block with its row count and CRC-32C. Rows
are written a block at a time, when the log is checkpointed; what is missing behind the last block is read anew from
the segment. Row: first offset less the base u32, position u32, bytes u32, CRC-32C u32, max timestamp i64.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage.disk import Disk, File
from cordwood.storage.errors import DamagedLog, damage_of

_HEAD = struct.Struct(">8sqI")
_BLOCK = struct.Struct(">II")
_ROW = struct.Struct(">IIIIq")
_TIMESTAMP = struct.Struct(">16xq")
"""A row's last field alone."""
ROW_BYTES = _ROW.size
_MAGIC = b"CWINDEX1"
_first_u32 = struct.Struct(">I").unpack_from


class Interval(NamedTuple):
    """Some whole batches of a segment. `offset` counts from the segment's base offset."""

    offset: int
    position: int
    size: int
    crc: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """The position behind the interval."""
        return self.position + self.size


class Index:
    """The closed intervals of one segment, in order and without gaps from position 0 on."""

    __slots__ = ("_rows", "_saved", "is_outdated")

    def __init__(self) -> None:
        self._rows = bytearray()
        self._saved = 0
        self.is_outdated = False
        """Whether the file has rows that were given up since, and must not be believed."""

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def __getitem__(self, row: int) -> Interval:
        return Interval._make(_ROW.unpack_from(self._rows, row * ROW_BYTES))

    def __iter__(self) -> Iterator[Interval]:
        return map(Interval._make, _ROW.iter_unpack(bytes(self._rows)))

    @property
    def end(self) -> int:
        """The position behind the last closed interval."""
        return self.end_of_row(len(self) - 1)

    def end_of_row(self, row: int) -> int:
        """The position behind a row; 0 for row -1."""
        return self[row].end if row >= 0 else 0

    @property
    def size(self) -> int:
        """Bytes of the rows, to be held against `segment.index.bytes`."""
        return len(self._rows)

    def rows(self, first: int, stop: int) -> "Index":
        """Some of the rows, by number: a copy that stays as it is while these go on."""
        some = Index()
        some._rows += self._rows[first * ROW_BYTES : stop * ROW_BYTES]
        return some

    def append(self, interval: Interval) -> None:
        assert interval.position == self.end, "intervals lie end to end"
        self._rows += _ROW.pack(*interval)

    def row_of_offset(self, offset: int) -> int:
        """The last row that begins at or below `offset` (counted from the base offset); -1 where there is none."""
        rows = self._rows
        return bisect_right(range(len(self)), offset, key=lambda row: _first_u32(rows, row * ROW_BYTES)[0]) - 1

    def row_of_position(self, position: int) -> int:
        """The row whose interval contains `position`, or the number of rows where none does."""
        if position >= self.end:
            return len(self)
        rows = self._rows
        return bisect_right(range(len(self)), position, key=lambda row: _first_u32(rows, row * ROW_BYTES + 4)[0]) - 1

    def max_timestamp(self) -> int:
        """The largest timestamp of any interval; -1 where there is none. Walks all rows."""
        return max([timestamp for (timestamp,) in _TIMESTAMP.iter_unpack(bytes(self._rows))], default=-1)

    def is_outdated_behind(self, position: int) -> bool:
        """Whether the file has rows that are given up, or would be by `truncate`."""
        return self.is_outdated or self.row_of_position(position) < self._saved

    def truncate(self, position: int) -> None:
        """Forget every interval that reaches behind `position`."""
        keep = self.row_of_position(position)
        del self._rows[keep * ROW_BYTES :]
        if keep < self._saved:
            self.must_be_rewritten()

    def save(self, file: File, base_offset: int) -> None:
        """Write the rows that are not yet on disk as one more block; the whole file anew after a truncation.

        Raises OSError: the file may have a part of it, and the next call begins it anew.
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
            head = _HEAD.pack(_MAGIC, base_offset, crc32c(_MAGIC + struct.pack(">q", base_offset)))
            file.truncate(0)
            file.pwrite([head], 0)
            position, self._saved = len(head), 0
        rows = bytes(self._rows[self._saved * ROW_BYTES :])
        if rows:
            file.pwrite([_BLOCK.pack(len(rows) // ROW_BYTES, crc32c(rows)), rows], position)

    def must_be_rewritten(self) -> None:
        """The file no longer agrees with the rows: the next `save` begins it anew."""
        self._saved, self.is_outdated = 0, True


def empty(disk: Disk, path: str) -> None:
    """Have an index file, if there is one, say nothing. Sure when this returns; takes no room, which may be lacking."""
    if disk.exists(path):
        with closing(disk.open(path)) as file:
            file.truncate(0)
            file.sync()


def read(disk: Disk, path: str, base_offset: int, segment_bytes: int) -> tuple[Index, DamagedLog | None]:
    """The index file at `path` as far as it is sound and its segment reaches, and what is wrong with it.

    Empty where there is none. Raises OutOfResources, DiskFailed.
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
        damage = DamagedLog(path, 0, "the index reaches behind the end of its segment")
        index.truncate(0)
    return index, damage


def load(file: File, base_offset: int) -> tuple[Index, DamagedLog | None]:
    """The rows of an index file up to the first byte that is wrong, and what was wrong there.

    Nothing is lost with the rows behind: they are read anew from the segment, and the next `save` rewrites the file.
    """
    index = Index()
    content = file.pread(file.size(), 0)
    if len(content) < _HEAD.size:
        return index, None
    magic, base, crc = _HEAD.unpack_from(content)
    if magic != _MAGIC or base != base_offset or crc != crc32c(content[:16]):
        return index, DamagedLog(file.path, 0, "the index's head is wrong")
    position = _HEAD.size
    while position < len(content):
        count, crc = _BLOCK.unpack_from(content, position) if position + _BLOCK.size <= len(content) else (0, 0)
        rows = content[position + _BLOCK.size : position + _BLOCK.size + count * ROW_BYTES]
        if count == 0 or len(rows) < count * ROW_BYTES or crc32c(rows) != crc:
            index.must_be_rewritten()
            return index, DamagedLog(file.path, position, "a block of the index does not match its checksum")
        index._rows += rows
        position += _BLOCK.size + len(rows)
    index._saved = len(index)
    return index, None
