"""Manifest: a log's sealed segments as of a checkpoint, and how the files in its directory compare with it.

The manifest is a part of the `recovery` checkpoint, so that log start offset, recovery point and segments always agree.
Retention, DeleteRecords and truncation remove a segment from the manifest before they remove its file. A segment that
the manifest lists above the log start offset therefore exists, or was lost.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

_COUNT = struct.Struct(">I")
_ROW = struct.Struct(">qqqqqII")
_ROW_BEFORE_COMPACTION = struct.Struct(">qqqqqI")
_ROW_BEFORE_TRANSACTIONS = struct.Struct(">qqqq")


class SealedSegment(NamedTuple):
    """A segment that takes no more appends. `size` in bytes.

    `max_timestamp` in milliseconds: -1 if no record has one, UNKNOWN_TIMESTAMP if sealed before there was a manifest.
    """

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    undecided: int
    """First offset of the oldest transaction that was undecided at the base offset; that offset if there was none."""
    aborted: int = 0
    """Number of aborted transactions in the segment's aborted index."""
    generation: int = 0
    """How often the log cleaner has rewritten it: a part of the names of its files. Gaps in its offsets are no loss."""


UNKNOWN_TIMESTAMP = -2

Manifest = tuple[SealedSegment, ...]


class Layout(NamedTuple):
    """Segments of a log, by the manifest and the base offsets of the existing files.

    `sealed` are taken as listed. `others` are the base offsets of files after them, which recovery reads. `gap` is a
    range of offsets between the two that has no file. `foreign` and `removed` are base offsets of files that are not
    part of the log: `removed` are below the log start offset, and a crash kept them from being removed.
    """

    sealed: Sequence[SealedSegment]
    others: Sequence[int]
    gap: tuple[int, int] | None
    foreign: Sequence[int]
    removed: Sequence[int]


def lay_out(manifest: Manifest, bases: Sequence[int], log_start: int) -> Layout:
    """Return the layout of a log from its manifest and the base offsets of its files, in ascending order."""
    there = set(bases)
    sealed = [row for row in manifest if row.end_offset > log_start or row.base_offset in there]
    covered_end = sealed[-1].end_offset if sealed else -1
    others = [base for base in bases if base >= covered_end]
    listed = {row.base_offset for row in sealed}
    unlisted = [base for base in bases if base < covered_end and base not in listed]
    due = max(covered_end, log_start)
    return Layout(
        sealed,
        others,
        (due, others[0]) if others and due < others[0] else None,
        [base for base in unlisted if base >= log_start],
        [base for base in unlisted if base < log_start],
    )


class RowLayout(IntEnum):
    """Versions of the manifest's rows. Each has more fields than the one before."""

    FIRST = 1
    WITH_TRANSACTIONS = 2
    WITH_COMPACTION = 3


_ROWS = {
    RowLayout.FIRST: _ROW_BEFORE_TRANSACTIONS,
    RowLayout.WITH_TRANSACTIONS: _ROW_BEFORE_COMPACTION,
    RowLayout.WITH_COMPACTION: _ROW,
}
_FIELDS = {RowLayout.FIRST: 4, RowLayout.WITH_TRANSACTIONS: 6, RowLayout.WITH_COMPACTION: 7}


def encode(manifest: Manifest, layout: RowLayout = RowLayout.WITH_COMPACTION) -> bytes:
    """Return the manifest as `decode` reads it."""
    row, fields = _ROWS[layout], _FIELDS[layout]
    return _COUNT.pack(len(manifest)) + b"".join([row.pack(*segment[:fields]) for segment in manifest])


def decode(content: bytes, layout: RowLayout = RowLayout.WITH_COMPACTION) -> tuple[Manifest, bytes]:
    """Return the manifest that `content` begins with, and the bytes after it. Raises struct.error if a row is cut."""
    (count,) = _COUNT.unpack_from(content)
    row = _ROWS[layout]
    end = _COUNT.size + count * row.size
    rows = row.iter_unpack(content[_COUNT.size : end])
    if layout is RowLayout.FIRST:
        return tuple([SealedSegment._make((*fields, fields[0], 0, 0)) for fields in rows]), content[end:]
    if layout is RowLayout.WITH_TRANSACTIONS:
        return tuple([SealedSegment._make((*fields, 0)) for fields in rows]), content[end:]
    return tuple(map(SealedSegment._make, rows)), content[end:]
