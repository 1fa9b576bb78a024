"""Verification of an archive: every commit can be read, and every object exists with the checksum of its upload."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from crc32c import crc32c

from cordwood.archive import layout
from cordwood.archive.commits import TopicObject, read_chain, read_topics
from cordwood.archive.manifest import ArchivedSegment
from cordwood.archive.segment_state import DamagedState, decode
from cordwood.archive.store import ObjectMissing, ObjectStore

PIECE_BYTES = 8 << 20
SEGMENTS_AT_ONCE = 4


class Finding(NamedTuple):
    """Something that is not as it was written. `name` is that of an object; "" if it has none."""

    topic: str
    partition: int
    name: str
    what: str


class PartitionVerified(NamedTuple):
    """One partition after its verification."""

    topic: TopicObject
    partition: int
    start: int
    end: int
    segments: int
    size: int
    """Bytes of all its batches."""
    findings: tuple[Finding, ...]


async def verify(
    store: ObjectStore, cluster_id: str, topics: Sequence[str] = (), *, reads_all: bool = True
) -> AsyncIterator[PartitionVerified]:
    """Verify every partition of the cluster's archive, or only those of some topics. Raises StoreUnavailable.

    Without `reads_all` only names and sizes are compared.
    """
    for topic in await read_topics(store, cluster_id):
        if not topic.is_deleted and (not topics or topic.name in topics):
            for partition in range(topic.partitions):
                yield await _partition(store, cluster_id, topic, partition, reads_all)


async def _partition(
    store: ObjectStore, cluster_id: str, topic: TopicObject, partition: int, reads_all: bool
) -> PartitionVerified:
    chain = await read_chain(store, cluster_id, topic.id, partition)
    listed = await store.list(layout.partition_prefix(cluster_id, topic.id, partition))
    sizes = {one.name: one.size for one in listed}
    limit = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    async def one(segment: ArchivedSegment) -> list[Finding]:
        names = layout.segment_names(cluster_id, topic.id, partition, segment)
        async with limit:
            found = await verify_segment(store, names, segment, sizes if not reads_all else None)
        return [Finding(topic.name, partition, name, what) for name, what in found]

    segments = chain.archive.segments
    findings = [
        Finding(topic.name, partition, layout.commit_name(cluster_id, topic.id, partition, gap), "not readable")
        for gap in chain.gaps
    ]
    for before, after in pairwise(segments):
        if before.end_offset != after.start_offset:
            what = f"offset {after.start_offset} follows offset {before.end_offset}"
            findings.append(Finding(topic.name, partition, "", what))
    for found in await asyncio.gather(*map(one, segments)):
        findings += found
    start, end = chain.archive.start, chain.archive.end
    ends = (chain.end if start is None else start, chain.end if end is None else end)
    return PartitionVerified(topic, partition, *ends, len(segments), chain.archive.size, tuple(findings))


async def verify_segment(
    store: ObjectStore, names: tuple[str, str], segment: ArchivedSegment, sizes: Mapping[str, int] | None = None
) -> list[tuple[str, str]]:
    """Return the findings about the two objects of a segment, by name. With `sizes`, reads nothing and compares them.

    Raises StoreUnavailable.
    """
    expected = dict(zip(names, (segment.size, segment.state_size), strict=True))
    if sizes is not None:
        return [
            (name, "the object is missing" if name not in sizes else f"{sizes[name]} of {size} bytes are there")
            for name, size in expected.items()
            if sizes.get(name) != size
        ]
    found = []
    try:
        if await _crc_of(store, names[0], segment.size) != segment.crc:
            found.append((names[0], "not what was uploaded"))
    except ObjectMissing as missing:
        found.append((names[0], str(missing)))
    try:
        content = await store.get(names[1])
        if crc32c(content) != segment.state_crc or len(content) != segment.state_size:
            found.append((names[1], "not what was uploaded"))
        elif decode(content).intervals[-1].end != segment.size:
            found.append((names[1], "its index does not cover the segment"))
    except ObjectMissing as missing:
        found.append((names[1], str(missing)))
    except DamagedState as damaged:
        found.append((names[1], str(damaged)))
    return found


async def _crc_of(store: ObjectStore, name: str, size: int) -> int:
    crc = 0
    for start in range(0, size, PIECE_BYTES):
        content = await store.get_range(name, start, min(start + PIECE_BYTES, size))
        crc = crc32c(content, crc)
    return crc
