"""A stretch of a segment that a reader was promised, taken from the disk piece by piece as the reader keeps up."""

from dataclasses import dataclass

from cordwood.storage.disk import Bytes
from cordwood.storage.segment import Segment

PIECE_BYTES = 256 << 10


@dataclass(slots=True)
class Slice:
    """Whole batches of one segment, from byte `start` to `stop`. `next_piece` moves `start` on."""

    segment: Segment
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Bytes that are still to come."""
        return self.stop - self.start

    def next_piece(self, *, wait: bool = True) -> Bytes:
        """The next bytes, about 256 KiB of them, proven to be what was written.

        Raises DamagedLog where they are not; NotInMemory, changing nothing, where the disk would have to be waited for
        and `wait` is off.
        """
        end = self.segment.piece_end(self.start, self.stop, PIECE_BYTES)
        piece = self.segment.read(self.start, end, wait=wait)
        self.start = end
        return piece
