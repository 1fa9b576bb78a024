"""Slice of a segment: whole batches for one reader, which reads them from the disk piece by piece."""

from dataclasses import dataclass

from cordwood.storage.batch import peek
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import Truncated
from cordwood.storage.segment import Segment

PIECE_BYTES = 256 << 10


@dataclass(slots=True)
class Slice:
    """Whole batches of one segment, from byte `start` to `stop`. `next_piece` moves `start` on."""

    segment: Segment
    start: int
    stop: int
    truncations: int
    """The segment's count of truncations when the slice was made."""

    @property
    def size(self) -> int:
        """Bytes that are still to be read."""
        return self.stop - self.start

    def next_offset(self, *, wait: bool = True) -> int:
        """Return the offset after the slice, where a reader continues. Raises as `Segment.read`."""
        segment = self.segment
        if self.stop == segment.size:
            return segment.end_offset
        return segment.header_at(self.stop, wait=wait).base_offset

    def next_piece(self, *, wait: bool = True) -> Bytes:
        """Return the next bytes, about 256 KiB of them, verified against their checksums.

        Raises DamagedLog if they are not; Truncated if the log was truncated meanwhile; NotInMemory, with no change, if
        the disk would have to be read and `wait` is off; OutOfResources; DiskFailed.
        """
        segment = self.segment
        if segment.truncations != self.truncations:
            raise Truncated(f"{segment.path} was truncated")
        end = segment.piece_end(self.start, self.stop, PIECE_BYTES, wait=wait)
        piece = segment.read(self.start, end, wait=wait)
        self.start = end
        return piece


def read_end(segment: Segment, start: int, stop: int, max_bytes: int, *, wait: bool = True) -> int:
    """Return the end of a read of at most `max_bytes` from `start` on, and at least one batch. Raises as `read`."""
    end = segment.piece_end(start, stop, max_bytes, wait=wait)
    if end - start <= max_bytes:
        return end
    data = segment.read(start, end, wait=wait)
    size = peek(data).size
    while size < len(data) and size + (more := peek(data, size).size) <= max_bytes:
        size += more
    return start + size
