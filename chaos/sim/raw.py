"""A replica's batches as they lie on its simulated disk, read past the broker: whoever watches must leave no trace."""

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.partition import Partition
from cordwood.storage.batch import HEADER_BYTES, check, peek
from cordwood.storage.errors import CorruptBatch

NOWHERE = -1


@dataclass(slots=True)
class Cursor:
    """How far a replica has been read: the offset that comes next, and where its batch begins if that is known."""

    offset: int = 0
    segment: int = NOWHERE
    position: int = 0

    def lose_place(self) -> None:
        """The files may have been rewritten: the offset has to be looked for again."""
        self.segment = NOWHERE


def batches(disk: SimulatedDisk, partition: Partition, cursor: Cursor, end: int) -> Iterator[bytes]:
    """Whole batches from the one that contains the cursor on, up to offset `end`; the cursor goes along.

    Raises CorruptBatch where something lies there that is none, and OSError where there is no such file.
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
            if pages.is_rotten(cursor.position, cursor.position + size):
                raise CorruptBatch(f"a flipped bit at {cursor.position} or soon behind")
            if header.end > end:
                return
            if header.end > cursor.offset:
                yield batch
                cursor.offset = header.end
            cursor.position += size
