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

    In a gap between batches, return the end of the batch before it and the position of the batch after it: a log that
    is truncated there loses no batch below `offset`, and still ends with a batch. The first batch of an index interval
    is found without a read. Raises DamagedLog if a batch has to be read and is damaged.
    """
    index = segment.index
    row = index.row_of_offset(offset - segment.base_offset)
    if row >= 0 and index[row].offset == offset - segment.base_offset:
        position = index[row].position
        return _end_before(segment, position) if segment.generation else offset, position
    position = segment.locate(offset)
    if position < segment.size:
        base = next(segment.headers(position, segment.size))[1].base_offset
        if base < offset or not segment.generation:
            return base, position
    elif offset >= segment.end_offset:
        return offset, position
    return _end_before(segment, position), position


def _end_before(segment: Segment, position: int) -> int:
    """Return the offset after the batch that ends at `position`; the segment's base offset if there is none."""
    if position == 0:
        return segment.base_offset
    proofs = segment.proofs()
    start = proofs[proofs.row_of_position(position - 1)].position
    *_, (_, header) = segment.headers(start, position)
    return header.end


def headers_from(segments: Iterable[Segment], offset: int, end: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Yield segment, position and header of each batch from the one with `offset` up to `end`. Blocks on the disk.

    Raises DamagedLog if one of them is damaged or missing, after those before it.
    """
    for segment in segments:
        if segment.base_offset >= end:
            break
        if segment.end_offset <= offset:
            continue
        if segment.is_lost:
            raise DamagedLog(segment.path, 0, "the records are missing")
        start = segment.locate(offset) if segment.base_offset < offset else 0
        stop = segment.size if segment.end_offset <= end else batch_boundary(segment, end)[1]
        for position, header in segment.headers(start, stop):
            if header.base_offset >= end:
                # It has been appended meanwhile.
                break
            yield segment, position, header
