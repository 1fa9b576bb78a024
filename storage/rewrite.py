"""Writing once more what is in memory, where the disk may not have it."""

import contextlib

from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import Segment


def write_index_again(segment: Segment) -> None:
    """Write the segment's index anew, from memory or, where that does not have it, from the segment itself. Blocks.

    Raises DamagedLog where the segment does not have all that it should: the index has what could be made out.
    """
    if segment.index.end < segment.size:
        segment.close_interval()
    index = segment.index
    index.must_be_rewritten()
    segment.write_index(index, sync=True)
    if index.end < segment.size:
        raise DamagedLog(segment.path, index.end, "no batch can be made out from here on")
    if segment.is_sealed:
        last = index[len(index) - 1]
        *_, (_, header) = segment.headers(last.position, last.end)
        if header.end != segment.end_offset:
            what = f"it ends at offset {header.end} where {segment.end_offset} is due"
            raise DamagedLog(segment.path, last.position, what)


def write_again(segment: Segment, offset: int) -> None:
    """Write what the segment has from `offset` on once more, so that the next sync takes it to the disk.

    After a sync that failed, memory holds what the disk does not, and calls it clean. What is damaged stays as it is.
    """
    proofs = segment.proofs()
    first = max(proofs.row_of_offset(offset - segment.base_offset), 0)
    for interval in proofs.rows(first, len(proofs)):
        with contextlib.suppress(DamagedLog):
            segment.file.pwrite([segment.read(interval.position, interval.end)], interval.position)
