"""Aborted index of a segment: the aborted transactions whose markers are in the segment (Kafka's transaction index).

A read_committed fetch gets the aborted transactions that overlap its records. Row, in ascending order of markers:
producer id i64, first offset i64, offset of the marker i64, last stable offset after the marker i64.

The rows of batches below the recovery point are in the segment's `.txnindex` file, and the checkpoint has their number:
a file with fewer sound rows is damage, and is rebuilt from the batches. Rows in excess are stale.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog, NotInMemory, damage_of
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.row_blocks import block_of, head_of, read_rows

SUFFIX = ".txnindex"
_MAGIC = b"CWABORT1"
_ROW = struct.Struct(">qqqq")
_marker_offset = struct.Struct(">16xq8x").unpack_from
ROW_BYTES = _ROW.size
ROWS_PER_BLOCK = 256
"""Rows that a search may pass over together."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as a Fetch response names it."""

    producer_id: int
    first_offset: int


class AbortedRow(NamedTuple):
    """An aborted transaction from its first offset to its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    """First offset that was undecided after the marker, or the offset after the marker."""


@dataclass(frozen=True, slots=True)
class UnsavedRows:
    """Rows of one index that a checkpoint writes. With `is_whole`, they replace the file."""

    index: "AbortedIndex"
    rows: bytes
    count: int
    """Number of rows in the file afterwards."""
    is_whole: bool

    def write(self, disk: Disk) -> None:
        """Write the rows, durable once the directory is synced. Blocks on the disk. Raises OSError.

        Until `AbortedIndex.saved`, the file counts as unknown: after an error it is replaced.
        """
        self.index.must_be_rewritten()
        path = self.index.path
        target = f"{path}.new" if self.is_whole else path
        with closing(disk.open(target, create=self.is_whole)) as file:
            position = 0 if self.is_whole else file.size()
            pieces = [block_of(self.rows, ROW_BYTES), self.rows] if self.rows else []
            if self.is_whole:
                # An earlier attempt may have crashed here and left a longer file.
                file.truncate(0)
                pieces.insert(0, head_of(_MAGIC, self.index.base_offset))
            file.pwrite(pieces, position)
            file.sync()
        if self.is_whole:
            disk.rename(target, path)
            sync_directory(disk, path.rpartition("/")[0])


class AbortedIndex:
    """Aborted transactions of one segment, in memory until a checkpoint has them and the segment is sealed."""

    __slots__ = (
        "_disk", "_least", "_opened", "_rows", "_saved", "_segment_path", "base_offset", "count", "missing",
        "undecided",
    )  # fmt: skip

    def __init__(self, disk: Disk, segment_path: str, base_offset: int, opened: OpenSegments) -> None:
        self._disk, self._opened, self._segment_path = disk, opened, segment_path
        self.base_offset = self.undecided = base_offset
        """First offset that was undecided where the segment begins, or that place: later markers end transactions that
        begin at or above it."""
        self.count = 0
        """Number of rows that are known."""
        self.missing = 0
        """Number of rows that were in a file that is damaged, and that recovery has not found in the batches."""
        self._rows: bytearray | None = None
        """None if there are none, or if they are only on disk, and perhaps in the cache."""
        self._saved = 0
        """Number of rows in the file; 0 if the file has to be replaced."""
        self._least: dict[int, int] = {}
        """Least first offset of complete blocks of rows, by their first row, as far as searches have needed them."""

    @property
    def path(self) -> str:
        return self._segment_path.removesuffix(".log") + SUFFIX

    def moved_to(self, segment_path: str) -> None:
        """Take the path that a rename gave the segment."""
        self._segment_path = segment_path

    def listed(self, undecided: int, count: int) -> None:
        """Take the number of rows in the file from a checkpoint. The rows are loaded when needed."""
        self.undecided, self.count = undecided, count
        self._saved = count

    def recovered(self, undecided: int, count: int) -> DamagedLog | None:
        """Load the rows of a segment that takes appends. Return the damage if there are fewer: then there are none.

        The file may have stale rows after them: the next checkpoint replaces it. Raises OutOfResources, DiskFailed.
        """
        self.listed(undecided, count)
        if (damage := self.damage()) is not None:
            self.replace(())
            self.missing = count
        elif count:
            self.must_be_rewritten()
        return damage

    def restored(self, found: Sequence[AbortedRow], *, is_all: bool) -> None:
        """Put rows that were found in the batches before those appended since `recovered`, and replace the file.

        Unless these are all, the file stays as it is: reads and restarts report its damage. Even all may be fewer than
        the file had: of a transaction whose batches retention has deleted, no row is needed.
        """
        missing = 0 if is_all else max(self.missing - len(found), 0)
        self.replace(chain(found, rows_of(bytes(self._in_memory()))))
        self.missing = missing

    @property
    def is_in_memory(self) -> bool:
        """Whether all rows are known without the file."""
        return not self.missing and (self._rows is not None or not self.count)

    @property
    def listed_count(self) -> int:
        """Number of rows that the file has to have."""
        return self.count + self.missing

    def append(self, row: AbortedRow) -> None:
        self._in_memory().extend(_ROW.pack(*row))
        self.count += 1

    def overlapping(self, start: int, end: int, *, wait: bool = True) -> Iterator[AbortedRow]:
        """Yield the transactions with records from `start` up to `end`.

        Raises DamagedLog, and NotInMemory if the disk would have to be read and `wait` is off.
        """
        if self.listed_count:
            # In this order: a thread must not note its result in rows that are replaced meanwhile.
            least, rows = self._least, self._content(wait=wait)
            place, count = _place_of(rows, start), len(rows) // ROW_BYTES
            while place < count:
                if place % ROWS_PER_BLOCK == 0 and _least_of(place, rows, least) >= end:
                    # An older transaction that stays open has many rows looked at, and few of them overlap.
                    place += ROWS_PER_BLOCK
                    continue
                row = AbortedRow._make(_ROW.unpack_from(rows, place * ROW_BYTES))
                place += 1
                if row.first_offset < end:
                    yield row
                if row.last_stable_offset >= end:
                    break

    def rows(self) -> list[AbortedRow]:
        """Return all rows. Blocks on the disk. Raises DamagedLog."""
        return rows_of(self.encode())

    def encode(self) -> bytes:
        """Return all rows as `rows_of` reads them. Blocks on the disk. Raises DamagedLog."""
        return bytes(self._content(wait=True))

    def count_below(self, end: int) -> int:
        """Return the number of markers below `end`. Rows that are only on disk are below every checkpoint's end."""
        return self.missing + (self.count if self._rows is None else _place_of(self._rows, end))

    def truncate(self, end: int) -> None:
        """Remove the rows of markers at or above `end`. Blocks on the disk. Raises DamagedLog."""
        if self.count:
            rows = self._in_memory()
            self.count = _place_of(rows, end)
            del rows[self.count * ROW_BYTES :]
            self._least = {}
            if self.count < self._saved:
                self.must_be_rewritten()

    def replace(self, rows: Iterable[AbortedRow]) -> None:
        """Replace all rows, and the file with the next checkpoint."""
        self._rows = bytearray(encode(rows))
        self.count, self.missing = len(self._rows) // ROW_BYTES, 0
        self._least = {}
        self._opened.forget_aborted(self)
        self.must_be_rewritten()

    def replace_below(self, end: int, rows: Iterable[AbortedRow]) -> None:
        """Replace the rows of markers below `end`, as `replace`: later ones may have been appended meanwhile."""
        later = b"" if self._rows is None else bytes(self._rows[_place_of(self._rows, end) * ROW_BYTES :])
        self.replace(chain(rows, rows_of(later)))

    def must_be_rewritten(self) -> None:
        """Let the next checkpoint replace the file, which may differ from the rows."""
        self._in_memory()
        self._saved = 0

    def unsaved(self, end: int) -> UnsavedRows | None:
        """Return the rows of markers below `end` that the file lacks; None if it has all, or is to stay damaged."""
        if self._rows is None or not self.count or self.missing:
            return None
        count, saved = _place_of(self._rows, end), self._saved
        if count == saved:
            return None
        return UnsavedRows(self, bytes(self._rows[saved * ROW_BYTES : count * ROW_BYTES]), count, saved == 0)

    def replacement(self, end: int) -> UnsavedRows:
        """Return the rows of markers below `end`, to replace the file before a truncation. Raises as `rows`.

        The next checkpoint replaces it again: the truncation may not come to pass.
        """
        rows = self._in_memory()
        count = _place_of(rows, end)
        return UnsavedRows(self, bytes(rows[: count * ROW_BYTES]), count, is_whole=True)

    def saved(self, count: int, *, is_sealed: bool) -> None:
        """Record that the file has the first `count` rows."""
        self._saved = count
        if is_sealed and count == self.count and self._rows is not None:
            self._opened.hold_aborted(self, bytes(self._rows))
            self._rows = None

    def damage(self) -> DamagedLog | None:
        """Return the damage in the file: it lacks rows of the last checkpoint. Blocks on the disk."""
        if self.missing:
            return self._unknown()
        try:
            if self._saved:
                self._read(self._saved)
        except DamagedLog as damaged:
            return damaged
        return None

    def _unknown(self) -> DamagedLog:
        return DamagedLog(self.path, 0, f"{self.count} of {self.listed_count} aborted transactions are known")

    def _content(self, *, wait: bool) -> bytes | bytearray:
        if self.missing:
            raise self._unknown()
        rows = self._rows
        if rows is None and not self.count:
            return b""
        if rows is None:
            cached = self._opened.aborted_of(self)
            if cached is not None:
                return cached
            if not wait:
                raise NotInMemory
            cached = self._read(self.count)
            self._opened.hold_aborted(self, cached)
            return cached
        return rows

    def _in_memory(self) -> bytearray:
        if self._rows is None:
            self._rows = bytearray(self._content(wait=True))
            self._opened.forget_aborted(self)
        return self._rows

    def _read(self, count: int) -> bytes:
        """Return the first `count` rows of the file. Raises DamagedLog if it has fewer, OutOfResources, DiskFailed."""
        try:
            with closing(self._disk.open(self.path)) as file:
                rows, damage = read_rows(file, _MAGIC, self.base_offset, ROW_BYTES)
        except FileNotFoundError:
            raise DamagedLog(self.path, 0, "the file is missing") from None
        except OSError as error:
            raise damage_of(error, self.path, 0) from error
        if len(rows) < count * ROW_BYTES:
            what = f"{len(rows) // ROW_BYTES} of {count} aborted transactions are present"
            raise damage or DamagedLog(self.path, 0, what)
        return rows[: count * ROW_BYTES]


def encode(rows: Iterable[AbortedRow]) -> bytes:
    """Return the rows as `rows_of` reads them."""
    return b"".join([_ROW.pack(*row) for row in rows])


def rows_of(content: bytes) -> list[AbortedRow]:
    """Return encoded rows."""
    return list(map(AbortedRow._make, _ROW.iter_unpack(content)))


def aborted_between(
    indexes: Iterable[AbortedIndex], start: int, end: int, *, wait: bool = True
) -> list[AbortedTransaction]:
    """Return the aborted transactions with records from `start` up to `end`, sorted by first offset.

    `indexes` are those of the segment with `start` and of all later ones. Raises as `AbortedIndex.overlapping`.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        if index.undecided >= end:
            # Markers from here on end transactions that begin at or above `end`.
            break
        found += [
            AbortedTransaction(row.producer_id, row.first_offset) for row in index.overlapping(start, end, wait=wait)
        ]
    return sorted(found, key=lambda transaction: transaction.first_offset)


def _least_of(place: int, rows: bytes | bytearray, known: dict[int, int]) -> int:
    """Return the least first offset of the block of rows that begins at `place`; -1 if it is not complete."""
    least = known.get(place)
    if least is None:
        block = bytes(rows[place * ROW_BYTES : (place + ROWS_PER_BLOCK) * ROW_BYTES])
        if len(block) < ROWS_PER_BLOCK * ROW_BYTES:
            return -1
        least = known[place] = min(first for _, first, _, _ in _ROW.iter_unpack(block))
    return least


def _place_of(rows: bytes | bytearray, offset: int) -> int:
    """Return the number of rows with markers below `offset`."""
    count = range(len(rows) // ROW_BYTES)
    return bisect_left(count, offset, key=lambda row: int(_marker_offset(rows, row * ROW_BYTES)[0]))
