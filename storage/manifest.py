"""Manifest: a log's sealed segments as of a checkpoint, and how the files in its directory compare with it.

The manifest is a part of the `recovery` checkpoint, so that log start offset, recovery point and segments always agree.
Retention, DeleteRecords and truncation remove a segment from the manifest before they remove its file. A segment that
the manifest lists above the log start offset therefore exists, or was lost.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from cordwood.storage.segment_files import SegmentFile

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
    """Segments of a log, by the manifest and the existing files.

    `sealed` are taken as listed. `others` are files after them, which recovery reads. `gap` is a range of offsets
    between the two that has no file. `foreign` and `removed` are files that are not part of the log. A crash kept those
    in `removed` from being removed: they are below the log start offset, or of another generation than the listed
    segment that covers them.
    """

    sealed: Sequence[SealedSegment]
    others: Sequence[SegmentFile]
    gap: tuple[int, int] | None
    foreign: Sequence[SegmentFile]
    removed: Sequence[SegmentFile]


def lay_out(manifest: Manifest, files: Sequence[SegmentFile], log_start: int) -> Layout:
    """Return the layout of a log from its manifest and its files, in ascending order."""
    there = set(files)
    sealed = [row for row in manifest if row.end_offset > log_start or (row.base_offset, row.generation) in there]
    covered_end = sealed[-1].end_offset if sealed else -1
    unread = [file for file in files if file.base_offset >= covered_end]
    # The one that may have the log start offset, and all after it.
    first = max([file.base_offset for file in unread if file.base_offset <= log_start], default=log_start)
    others = [file for file in unread if file.base_offset >= first]
    kept = {(row.base_offset, row.generation) for row in sealed}.union(others)
    unlisted = [file for file in files if file not in kept]
    foreign = [file for file in unlisted if file.base_offset >= log_start and not _is_left_over(file, sealed)]
    due = max(covered_end, log_start)
    return Layout(
        sealed,
        others,
        (due, others[0].base_offset) if others and due < others[0].base_offset else None,
        foreign,
        [file for file in unlisted if file not in foreign],
    )


def _is_left_over(file: SegmentFile, sealed: Sequence[SealedSegment]) -> bool:
    """Return whether a swap of the log cleaner has replaced the file, or never came to be committed."""
    place = bisect_right(sealed, file.base_offset, key=lambda row: row.base_offset) - 1
    return place >= 0 and sealed[place].generation != file.generation


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
