"""An archive of one broker's partitions, in memory: segments are archived and deleted here when the test says so."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from crc32c import crc32c

from cordwood.archive.layout import segment_names
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.archive.segment_state import decode, encode, state_of
from cordwood.archive.store import ObjectMissing, Pace, StoredObject, StoreUnavailable
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.tiering.reads import ArchiveReads
from cordwood.replication.partition import Partition
from cordwood.replication.token_bucket import UNLIMITED

CACHE_BYTES = 1 << 20
CHUNK_BYTES = 1000


class StoreInMemory:
    """An object store with its objects in `objects`, a delay for each read, and a switch for its failure."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.delay_s = 0.001
        self.is_down = False
        self.reads: Counter[tuple[str, int]] = Counter()
        """Number of reads of each object, by name and first byte."""

    async def put(self, name: str, content: bytes | memoryview) -> None:
        self.objects[name] = bytes(content)

    async def put_file(self, name: str, path: str, size: int, pace: Pace | None = None) -> None:
        raise NotImplementedError

    async def get(self, name: str) -> bytes:
        return await self.get_range(name, 0, 1 << 62)

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        self.reads[name, start] += 1
        await asyncio.sleep(self.delay_s)
        if self.is_down:
            raise StoreUnavailable("503 Slow Down")
        if name not in self.objects:
            raise ObjectMissing(name)
        return self.objects[name][start:end]

    async def list(self, prefix: str, after: str = "") -> Sequence[StoredObject]:
        raise NotImplementedError

    async def delete(self, names: Sequence[str]) -> None:
        raise NotImplementedError


class ArchiveFixture:
    """The archive, its manifests, and the reads of one broker."""

    def __init__(self, cache_bytes: int = CACHE_BYTES, chunk_bytes: int = CHUNK_BYTES, rate: int = UNLIMITED) -> None:
        self.store = StoreInMemory()
        self.image = Image(cluster_id="c")
        self.reads = ArchiveReads(lambda: self.image, self.store, cache_bytes, chunk_bytes, rate)

    def archive(self, partition: Partition, end: int | None = None) -> PartitionArchive:
        """Archive the sealed segments up to `end` that are not archived yet."""
        place = partition.topic_id, partition.index
        archive = self.image.archives.get(place, PartitionArchive())
        before = self._producers_below(partition, archive)
        for segment in partition.log.segments[:-1]:
            state = state_of(segment, partition.log.epochs, before)
            before = state.producers_encoded
            due = partition.log.log_start if archive.end is None else archive.end
            if segment.end_offset <= due or (end is not None and segment.end_offset > end):
                continue
            content, batches = encode(state), bytes(segment.read(0, segment.size))
            row = ArchivedSegment(
                id=UUID(int=1000 + segment.base_offset),
                base_offset=segment.base_offset,
                start_offset=max(segment.base_offset, due),
                end_offset=segment.end_offset,
                size=segment.size,
                crc=crc32c(batches),
                state_size=len(content),
                state_crc=crc32c(content),
                max_timestamp=segment.max_timestamp,
                leader_epoch=partition.log.epochs.epoch_at(segment.end_offset - 1),
            )
            names = segment_names(self.image.cluster_id, *place, row)
            self.store.objects |= dict(zip(names, (batches, content), strict=True))
            archive = replace(archive, segments=(*archive.segments, row), sequence=archive.sequence + 1)
        self.image = replace(self.image, archives={**self.image.archives, place: archive})
        return archive

    def _producers_below(self, partition: Partition, archive: PartitionArchive) -> bytes | None:
        """Return the producers as of the local start; None if nothing was archived before."""
        for row in archive.segments:
            if row.end_offset == partition.log.local_start:
                names = segment_names(self.image.cluster_id, partition.topic_id, partition.index, row)
                return decode(self.store.objects[names[1]]).producers_encoded
        return None

    def drop_local(self, partition: Partition) -> int:
        """Delete from the partition's disk what the archive has. Return the number of removed segments."""
        partition.log.config = replace(partition.log.config, is_archived=True, local_retention_bytes=0)
        dropped = partition.log.drop(partition.high_watermark, 0, self.reads.end_of(partition))
        for segment in dropped:
            segment.release()
            for path in filter(partition.log.disk.exists, segment.paths()):
                partition.log.disk.remove(path)
        return len(dropped)

    def names(self, kind: str = ".log") -> list[str]:
        """Return the names of all objects of a kind, in the order of their offsets."""
        return sorted(name for name in self.store.objects if name.endswith(kind))
