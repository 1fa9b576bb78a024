"""Offsets that a compacted log has lost. A lost record may have been a tombstone: nothing else deletes its key.

A record that such a tombstone deletes must not come back. So a repair takes batches only from a replica that is
compacted at least up to the last lost offset after the damage: it cannot have the record any more.
"""

from collections.abc import Iterable

from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import DamagedLog
from cordwood.storage.segment import Segment


def lost_end_of(headers: Iterable[BatchHeader], due: int) -> int:
    """Return the end of the last lost offsets before or within batches that follow offset `due`; 0 if none is."""
    end = 0
    for header in headers:
        if header.base_offset > due or header.record_count <= header.last_offset_delta:
            end = header.end
        due = header.end
    return end


def lost_end_in(segments: Iterable[Segment]) -> int:
    """Return the end of the last offsets that these adjacent segments have lost. Blocks on the disk.

    A damaged segment may have lost any. Raises OutOfResources, DiskFailed.
    """
    for segment in reversed([*segments]):
        try:
            end = lost_end_of((header for _, header in segment.headers(0, segment.size)), segment.base_offset)
        except DamagedLog:
            end = segment.end_offset
        if end:
            return end
    return 0
