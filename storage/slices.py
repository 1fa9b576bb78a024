"""A stretch of a segment that a reader was promised, taken from the disk piece by piece as the reader keeps up."""

from dataclasses import dataclass

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
    cuts: int
    """How often the segment had been cut when this was promised."""

    @property
    def size(self) -> int:
        """Bytes that are still to come."""
        return self.stop - self.start

    def offset_behind(self, *, wait: bool = True) -> int:
        """The offset at which a reader goes on behind this. Raises as `Segment.read` does."""
        segment = self.segment
        if self.stop == segment.size:
            return segment.end_offset
        return segment.header_at(self.stop, wait=wait).base_offset

    def next_piece(self, *, wait: bool = True) -> Bytes:
        """The next bytes, about 256 KiB of them, proven to be what was written.

        Raises DamagedLog where they are not; Truncated where the log was cut meanwhile; NotInMemory, changing nothing,
        where the disk would have to be waited for and `wait` is off.
        """
        segment = self.segment
        if segment.cuts != self.cuts:
            raise Truncated(f"{segment.path} was cut")
        end = segment.piece_end(self.start, self.stop, PIECE_BYTES, wait=wait)
        piece = segment.read(self.start, end, wait=wait)
        self.start = end
        return piece
