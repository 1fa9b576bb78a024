"""Rewrite of a segment's index and batches from memory, where the disk may not have them."""

import contextlib
from collections.abc import Iterable

from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import Segment


def write_index_again(segment: Segment) -> None:
    """Rewrite the segment's index from memory or, if it is not there, from the segment. Blocks on the disk.

    Raises OSError, and DamagedLog if the segment lacks batches: the index covers what could be read.
    """
    if segment.index.end < segment.size:
        segment.close_interval()
    index = segment.index
    index.must_be_rewritten()
    segment.write_index(index, sync=True)
    if index.end < segment.size:
        raise DamagedLog(segment.path, index.end, "no valid batch from this position on")
    if segment.is_sealed:
        last = max(len(index) - 1, 0)
        position, end = index.end_of_row(last - 1), segment.base_offset
        for _, header in segment.headers(position, index.end):
            end = header.end
        if end != segment.end_offset:
            what = f"the segment ends at offset {end}, but {segment.end_offset} was expected"
            raise DamagedLog(segment.path, position, what)


def sync_again(segments: Iterable[Segment], offset: int) -> None:
    """Write the batches from `offset` on again, and sync them. Blocks on the disk."""
    for segment in segments:
        if segment.end_offset >= offset and not segment.is_lost:
            write_again(segment, offset)
            segment.file.sync()


def write_again(segment: Segment, offset: int) -> None:
    """Rewrite the segment's batches from `offset` on, so that the next sync writes them to the disk.

    After a failed sync the page cache has bytes that the disk does not have, and marks them clean. Damaged intervals
    stay unchanged.
    """
    proofs = segment.proofs()
    first = max(proofs.row_of_offset(offset - segment.base_offset), 0)
    for interval in proofs.rows(first, len(proofs)):
        with contextlib.suppress(DamagedLog):
            segment.file.pwrite([segment.read(interval.position, interval.end)], interval.position)
