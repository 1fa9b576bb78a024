"""Offset and position lookups in segments' indexes, which also work where batches are damaged."""

from collections.abc import Iterable, Iterator

from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import Segment


def offset_at(segment: Segment, position: int) -> int:
    """Return an offset at or before which the batches at `position` begin. Blocks on the disk."""
    try:
        index = segment.index
    except DamagedLog:
        return segment.base_offset
    row = min(index.row_of_position(position), len(index) - 1)
    return segment.base_offset + (index[row].offset if row >= 0 else 0)


def batch_boundary(segment: Segment, offset: int) -> tuple[int, int]:
    """Return base offset and position of the batch that contains `offset`, or the segment's end. Blocks on the disk.

    The first batch of an index interval is found without a read. Raises DamagedLog if a batch has to be read and is
    damaged.
    """
    index = segment.index
    row = index.row_of_offset(offset - segment.base_offset)
    if row >= 0 and index[row].offset == offset - segment.base_offset:
        return offset, index[row].position
    position = segment.locate(offset)
    if position == segment.size:
        return offset, position
    return next(segment.headers(position, segment.size))[1].base_offset, position


def headers_from(segments: Iterable[Segment], offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Yield segment, position and header of each batch from the one with `offset` on. Blocks on the disk.

    Raises DamagedLog.
    """
    for segment in segments:
        if segment.end_offset > offset:
            start = segment.locate(offset) if segment.base_offset < offset else 0
            for position, header in segment.headers(start, segment.size):
                yield segment, position, header
