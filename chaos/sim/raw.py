"""Raw reads of a replica's batches from its simulated disk, without effect on the broker."""

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.partition import Partition
from cordwood.storage.batch import HEADER_BYTES, check, peek
from cordwood.storage.errors import CorruptBatch

NOWHERE = -1


@dataclass(slots=True)
class Cursor:
    """A read position: the next offset, and the position of its batch if known."""

    offset: int = 0
    segment: int = NOWHERE
    position: int = 0

    def lose_place(self) -> None:
        """Drop the file position, because the files may have been rewritten."""
        self.segment = NOWHERE


def batches(disk: SimulatedDisk, partition: Partition, cursor: Cursor, end: int) -> Iterator[bytes]:
    """Yield whole batches from the one at the cursor, up to offset `end`, and advance the cursor.

    Raises CorruptBatch where the bytes are no valid batch, and OSError where a file is missing.
    """
    for segment in partition.log.segments:
        if segment.end_offset <= cursor.offset:
            continue
        if cursor.segment != segment.base_offset:
            cursor.segment, cursor.position = segment.base_offset, 0
        pages = disk.pages(segment.path)
        while cursor.position < segment.size:
            size = peek(pages.seen.read(HEADER_BYTES, cursor.position)).size
            batch = pages.seen.read(size, cursor.position)
            header = check(batch)
            if pages.is_corrupt(cursor.position, cursor.position + size):
                raise CorruptBatch(f"a flipped bit at {cursor.position} or soon behind")
            if header.end > end:
                return
            if header.end > cursor.offset:
                yield batch
                cursor.offset = header.end
            cursor.position += size
