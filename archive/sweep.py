"""Sweep of an archive: objects that no manifest has, found by a list of the store.

Brokers delete the objects that they know: those of removed segments, and of uploads that were never committed. A list
finds what no manifest knows, for example after a restoration, and old commits and topic objects. An object counts only
once it is older than the grace period, so that no upload and no reader loses what it works with.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from cordwood.archive import layout
from cordwood.archive.commits import WHOLE_EVERY, DamagedCommit, TopicObject, decode_commit, read_chain, read_topics
from cordwood.archive.store import ObjectMissing, ObjectStore, StoredObject

GRACE_MS = 24 * 3600 * 1000

Place = tuple[UUID, int]
"""A partition: topic id and index."""


class Orphan(NamedTuple):
    """An object to delete, and the reason."""

    name: str
    size: int
    why: str


async def orphans(
    store: ObjectStore,
    cluster_id: str,
    now_ms: int,
    grace_ms: int = GRACE_MS,
    in_use: Mapping[Place, Iterable[UUID]] | None = None,
) -> AsyncIterator[Orphan]:
    """Yield what may be deleted, the newest commit of each partition never. Raises StoreUnavailable.

    `in_use` has the ids of segments and uploads that the caller knows of, by partition; brokers have them in the
    metadata. Without it the commits alone tell what is in use: a partition with a gap in its commits is left alone.
    """
    old = now_ms - grace_ms
    topics = {topic.id: topic for topic in await read_topics(store, cluster_id)}
    for one in await store.list(layout.topics_prefix(cluster_id)):
        found = layout.topic_in(cluster_id, one.name)
        is_superseded = found is not None and found[0] in topics and found[1] < topics[found[0]].sequence
        if is_superseded and one.modified_ms < old:
            yield Orphan(one.name, one.size, "a newer object of the topic is there")
    for place, objects in (await _segment_objects(store, cluster_id)).items():
        known = await _known(store, cluster_id, place, topics.get(place[0]), in_use)
        for one, identity in objects:
            if known is not None and identity not in known and one.modified_ms < old:
                yield Orphan(one.name, one.size, "no manifest has the segment")
    for topic in topics.values():
        for partition in range(topic.partitions):
            async for orphan in _old_commits(store, cluster_id, topic.id, partition, old):
                yield orphan


async def _segment_objects(store: ObjectStore, cluster_id: str) -> dict[Place, list[tuple[StoredObject, UUID]]]:
    """Return the objects of segments, each with its segment's id, by partition."""
    found: dict[Place, list[tuple[StoredObject, UUID]]] = {}
    for one in await store.list(layout.segments_prefix(cluster_id)):
        name = layout.segment_in(cluster_id, one.name)
        if name is not None:
            found.setdefault((name.topic_id, name.partition), []).append((one, name.id))
    return found


async def _known(
    store: ObjectStore,
    cluster_id: str,
    place: Place,
    topic: TopicObject | None,
    in_use: Mapping[Place, Iterable[UUID]] | None,
) -> set[UUID] | None:
    """Return the segments of a partition that are needed; None if that is not known."""
    if topic is not None and topic.is_deleted and in_use is None:
        return set()
    chain = await read_chain(store, cluster_id, *place)
    known = {segment.id for segment in chain.archive.segments}
    if in_use is not None:
        return known.union(in_use.get(place, ()))
    is_unwritten = topic is not None and not chain.newest
    return None if chain.gaps or is_unwritten else known


async def _old_commits(
    store: ObjectStore, cluster_id: str, topic_id: UUID, partition: int, old: int
) -> AsyncIterator[Orphan]:
    """Yield the commits that no reader needs: it begins at the newest one that has all segments."""
    listed = {
        sequence: one
        for one in await store.list(layout.commits_prefix(cluster_id, topic_id, partition))
        if (sequence := layout.sequence_in(one.name)) is not None
    }
    newest = max(listed, default=0)
    begin = newest - newest % WHOLE_EVERY
    if begin not in listed:
        return
    try:
        if not decode_commit(await store.get(listed[begin].name)).is_whole:
            return
    except (ObjectMissing, DamagedCommit):
        return
    for sequence, one in listed.items():
        if sequence < begin and one.modified_ms < old:
            yield Orphan(one.name, one.size, f"commit {begin} has all segments")
