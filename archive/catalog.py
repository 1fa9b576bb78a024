"""Catalog of an archive without brokers: topics by name, and what can be read of their partitions."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.archive import layout, segment_state
from cordwood.archive.commits import TopicObject, read_chain, read_clusters, read_topics
from cordwood.archive.manifest import ArchivedSegment
from cordwood.archive.segment_state import DamagedState, SegmentState
from cordwood.archive.store import ObjectStore, StoreError


class PartitionId(NamedTuple):
    """A partition in the archive of a cluster."""

    cluster_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ArchivedPartitionLog:
    """The segments of a partition as of a commit, contiguous, with the end of what a read_committed reader may read.

    A transaction that has a record below `decided_end` has its marker in the archive, too.
    """

    id: PartitionId
    segments: tuple[ArchivedSegment, ...]
    decided_end: int
    log_start: int = 0
    """Offset below which records were deleted."""

    @property
    def start(self) -> int:
        """First archived offset that was not deleted; `decided_end` if nothing is archived."""
        return max(self.segments[0].start_offset, self.log_start) if self.segments else self.decided_end

    @property
    def end(self) -> int:
        """Offset after the last archived one; `decided_end` if nothing is archived."""
        return self.segments[-1].end_offset if self.segments else self.decided_end

    def position_of(self, offset: int) -> int:
        """Return the position of the segment with an offset; the number of segments if there is none."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.end_offset)


class DamagedObject(Exception):
    """An object whose content differs from its commit or its state."""

    def __init__(self, name: str, offset: int, what: str) -> None:
        super().__init__(f"the object {name} of the archive {what}")
        self.name, self.offset = name, offset


async def read_partition(store: ObjectStore, partition: PartitionId) -> ArchivedPartitionLog:
    """Return the archived segments of a partition. Raises StoreError, DamagedObject."""
    chain = await read_chain(store, *partition)
    segments = chain.archive.segments
    if not segments:
        return ArchivedPartitionLog(partition, (), 0)
    oldest = (await read_state(store, partition, segments[-1])).producers.oldest_in_transaction
    end = segments[-1].end_offset
    decided = end if oldest is None else min(end, oldest.current_transaction_first_offset)
    return ArchivedPartitionLog(partition, segments, decided, chain.archive.log_start)


async def read_partitions(store: ObjectStore, partitions: Iterable[PartitionId]) -> list[ArchivedPartitionLog]:
    """Return the archived segments of partitions. Raises as `read_partition`."""
    return await asyncio.gather(*[read_partition(store, partition) for partition in partitions])


async def read_state(store: ObjectStore, partition: PartitionId, segment: ArchivedSegment) -> SegmentState:
    """Return the state of a segment. Raises StoreError, DamagedObject."""
    _, name = layout.segment_names(*partition, segment)
    content = await store.get(name)
    try:
        state = segment_state.decode(content)
    except DamagedState as error:
        raise DamagedObject(name, segment.start_offset, f"is damaged: {error}") from None
    if (state.base_offset, state.end_offset) != (segment.base_offset, segment.end_offset):
        raise DamagedObject(name, segment.start_offset, "is of another segment")
    return state


async def find_cluster(store: ObjectStore, cluster_id: str | None) -> str:
    """Return the only cluster with an archive in the store, or the named one. Raises StoreError."""
    known = await read_clusters(store)
    if cluster_id is None and len(known) == 1:
        return known[0]
    if cluster_id in known:
        assert cluster_id is not None, "it is known"
        return cluster_id
    there = f"it has archives of the clusters {', '.join(known)}: name one" if known else "it has no archive"
    raise StoreError(f"there is no archive of cluster {cluster_id}; {there}" if cluster_id else there)


async def find_topics(store: ObjectStore, cluster_id: str) -> dict[str, TopicObject]:
    """Return the topics that exist, by name: of several with one name, the newest. Raises StoreError."""
    topics = [topic for topic in await read_topics(store, cluster_id) if not topic.is_deleted]
    return {topic.name: topic for topic in sorted(topics, key=lambda topic: topic.sequence)}
