"""Raw reads of a replica's batches from its simulated disk and from the archive, without effect on the broker."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cordwood.archive.layout import segment_names
from cordwood.archive.manifest import PartitionArchive
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.metadata.image import Image
from cordwood.replication.partition import Partition
from cordwood.storage.batch import LENGTH_PREFIX_BYTES, BatchHeader, check, peek
from cordwood.storage.errors import CorruptBatch

NOWHERE = ""
LENGTH_BYTES = 4
LENGTH_AT = LENGTH_PREFIX_BYTES - LENGTH_BYTES
"""The place of its length in a batch."""
BATCHES_KEPT = 1024
"""Batches whose check is kept."""
SEGMENTS_KEPT = 256
"""Sealed segments whose batches are kept."""

Read = Callable[[int, int], bytes]
"""Returns this many bytes at a position."""


@dataclass(slots=True)
class Cursor:
    """A read position: the next offset, and the position of its batch if known."""

    offset: int = 0
    segment: str = NOWHERE
    position: int = 0

    def lose_place(self) -> None:
        """Drop the file position, because the files may have been rewritten."""
        self.segment = NOWHERE


def batches(disk: SimulatedDisk, partition: Partition, cursor: Cursor, end: int) -> Iterator[bytes]:
    """Yield whole batches as `batches_with_headers` does."""
    return (batch for _, batch in batches_with_headers(disk, partition, cursor, end))


def batches_with_headers(
    disk: SimulatedDisk, partition: Partition, cursor: Cursor, end: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield whole batches from the one at the cursor, up to offset `end`, and advance the cursor.

    Raises CorruptBatch where the bytes are no valid batch, and OSError where a file is missing.
    """
    for segment in partition.log.segments:
        if segment.end_offset <= cursor.offset:
            continue
        if cursor.segment != segment.path:
            # The next segment, or the same one after the log cleaner has rewritten it.
            cursor.segment, cursor.position = segment.path, 0
        pages = disk.pages(segment.path)
        is_whole = segment.is_sealed and not cursor.position
        rows = (
            _sealed(pages.seen.read(segment.size, 0))
            if is_whole
            else _one_by_one(pages.seen.read, cursor.position, segment.size)
        )
        for header, batch in rows:
            if pages.is_corrupt(cursor.position, cursor.position + len(batch)):
                raise CorruptBatch(f"a flipped bit at {cursor.position} or soon after it")
            batch_end = header.end
            if batch_end > end:
                return
            if batch_end > cursor.offset:
                yield header, batch
                cursor.offset = batch_end
            cursor.position += len(batch)


def _sealed(content: bytes) -> Iterable[tuple[BatchHeader, bytes]]:
    """Return the batches of a sealed segment; up to the first one that is invalid, which then raises CorruptBatch."""
    try:
        return _whole(content)
    except CorruptBatch:
        return _one_by_one(_reader(content), 0, len(content))


@functools.lru_cache(SEGMENTS_KEPT)
def _whole(content: bytes) -> list[tuple[BatchHeader, bytes]]:
    """Return the batches of a segment. They are kept: after each round of its cleaner a log is read again."""
    return list(_one_by_one(_reader(content), 0, len(content)))


def _one_by_one(read: Read, position: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield the batches between two positions of a file. Raises CorruptBatch at one that is invalid."""
    while position < end:
        length = int.from_bytes(read(LENGTH_BYTES, position + LENGTH_AT), "big")
        batch = read(LENGTH_PREFIX_BYTES + length, position)
        yield _checked(batch), batch
        position += len(batch)


def _reader(content: bytes) -> Read:
    return lambda size, position: content[position : position + size]


@functools.lru_cache(BATCHES_KEPT)
def _checked(batch: bytes) -> BatchHeader:
    """Check a batch as `check` does. Raises CorruptBatch. Replicas have the same batches."""
    return check(batch)


def archived(objects: Mapping[str, bytes], image: Image, partition: Partition) -> Iterator[bytes]:
    """Yield the batches of a replica that only the archive has, by the manifest of an image.

    Raises CorruptBatch where the bytes are no valid batch, and KeyError where an object is missing.
    """
    log, place = partition.log, (partition.topic_id, partition.index)
    for segment in image.archives.get(place, PartitionArchive()).segments:
        if segment.end_offset <= log.log_start or segment.start_offset >= log.local_start:
            continue
        content, position = objects[segment_names(image.cluster_id, *place, segment)[0]], 0
        while position < len(content):
            size = peek(content, position).size
            batch = content[position : position + size]
            header = check(batch)
            if max(log.log_start, segment.start_offset) < header.end <= log.local_start:
                yield batch
            position += size
