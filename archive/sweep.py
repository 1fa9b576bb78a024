"""Sweep of an archive: objects that no manifest has, found by a list of the store.

Brokers delete the objects that they know: those of removed segments, and of uploads that were never committed. A list
finds the objects that no manifest has, for example after a restoration, and old commits and topic objects. An object
counts only once it is older than the grace period, so that no upload and no reader loses an object in use.

Commits may be written long after the metadata have the segment, for example while the store refuses them. So an object
of a segment counts only if a commit was written a grace period after it: that commit would have the segment. Objects
that a commit of the last grace period has removed may still be read.
"""

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from cordwood.archive import layout
from cordwood.archive.commits import (
    WHOLE_EVERY,
    DamagedCommit,
    TopicObject,
    decode_commit,
    read_chain,
    read_commits,
    read_topics,
)
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

    `in_use` has the ids of known segments and uploads by partition; brokers have them in the metadata. Without it the
    commits alone show what is in use. A partition with a gap in its commits is skipped then, and so are objects that
    are not older than its newest commit by the grace period.
    """
    old = now_ms - grace_ms
    topics = {topic.id: topic for topic in await read_topics(store, cluster_id)}
    for one in await store.list(layout.topics_prefix(cluster_id)):
        found = layout.topic_in(cluster_id, one.name)
        is_superseded = found is not None and found[0] in topics and found[1] < topics[found[0]].sequence
        if is_superseded and one.modified_ms < old:
            yield Orphan(one.name, one.size, "there is a newer object of the topic")
    for place, objects in (await _segment_objects(store, cluster_id)).items():
        known, decided_ms = await _known(store, cluster_id, place, topics.get(place[0]), in_use, old)
        for one, identity in objects:
            if identity not in known and one.modified_ms < min(old, decided_ms - grace_ms):
                yield Orphan(one.name, one.size, "no manifest has the segment")
    for topic in topics.values():
        for partition in range(topic.partitions):
            async for orphan in _old_commits(store, cluster_id, topic.id, partition, old):
                yield orphan


async def delete(store: ObjectStore, cluster_id: str, found: Sequence[Orphan]) -> list[Orphan]:
    """Delete orphans. Return those that were left, since a commit of today has them. Raises StoreUnavailable."""
    by_place: dict[Place | None, list[Orphan]] = {}
    for orphan in found:
        name = layout.segment_in(cluster_id, orphan.name)
        by_place.setdefault(None if name is None else (name.topic_id, name.partition), []).append(orphan)
    left: list[Orphan] = []
    for place, some in by_place.items():
        # Read again, now: the list may have taken hours.
        known = set() if place is None else await _listed(store, cluster_id, place)
        for orphan in some:
            name = layout.segment_in(cluster_id, orphan.name)
            if name is not None and name.id in known:
                left.append(orphan)
        await store.delete([orphan.name for orphan in some if orphan not in left])
    return left


async def _listed(store: ObjectStore, cluster_id: str, place: Place) -> set[UUID]:
    chain = await read_chain(store, cluster_id, *place)
    return {segment.id for segment in chain.archive.segments}


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
    old: float,
) -> tuple[set[UUID], float]:
    """Return the segments of a partition that are needed, and the time in ms as of which that is known.

    The time is that of the newest commit, -inf if the commits have a gap.
    """
    if topic is not None and topic.is_deleted and in_use is None:
        return set(), math.inf
    chain = await read_chain(store, cluster_id, *place)
    known = {segment.id for segment in chain.archive.segments}
    if in_use is not None:
        return known.union(in_use.get(place, ())), math.inf
    commits = await _commits_listed(store, cluster_id, place)
    lately = await _removed_since(store, cluster_id, place, commits, old)
    if chain.gaps or lately is None:
        return known, -math.inf
    read = [one.modified_ms for sequence, one in commits.items() if sequence <= chain.archive.sequence]
    return known | lately, max(read, default=-math.inf)


async def _commits_listed(store: ObjectStore, cluster_id: str, place: Place) -> dict[int, StoredObject]:
    """Return the objects of a partition's commits by sequence, in order."""
    found = await store.list(layout.commits_prefix(cluster_id, *place))
    by_sequence = {sequence: one for one in found if (sequence := layout.sequence_in(one.name)) is not None}
    return dict(sorted(by_sequence.items()))


async def _removed_since(
    store: ObjectStore, cluster_id: str, place: Place, commits: Mapping[int, StoredObject], old: float
) -> set[UUID] | None:
    """Return the segments that commits have removed since `old`, in ms; None if that is not known."""
    read = await read_commits(store, cluster_id, *place, [*commits])
    first = next(iter(commits), 1)
    if len(read) < len(commits) or (first != 1 and commits[first].modified_ms >= old):
        return None
    listed, removed = set[UUID](), set[UUID]()
    for sequence, one in commits.items():
        added = {segment.id for segment in read[sequence].added}
        after = added if read[sequence].is_whole else (listed - {*read[sequence].removed}) | added
        removed |= listed - after if one.modified_ms >= old else set()
        listed = after
    return removed


async def _old_commits(
    store: ObjectStore, cluster_id: str, topic_id: UUID, partition: int, old: int
) -> AsyncIterator[Orphan]:
    """Yield the commits that no reader needs: it begins at the newest one that has all segments."""
    listed = await _commits_listed(store, cluster_id, (topic_id, partition))
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
