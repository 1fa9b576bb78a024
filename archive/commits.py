"""Index objects of the archive: topics, and a chain of commits for each partition.

Readers without brokers have only these. Commit N is change N of the partition's manifest (`PartitionArchive.sequence`):
either the segments it has removed and added, or, from time to time, all segments. Every broker derives the same content
from the metadata, so that any of them may write a commit that another one has not; the first object stays.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID

from crc32c import crc32c

from cordwood.archive import layout
from cordwood.archive.manifest import ArchivedSegment, PartitionArchive
from cordwood.archive.store import ObjectMissing, ObjectStore

FORMAT = 1
WHOLE_EVERY = 64
"""Every commit whose sequence is a multiple of this has all segments: readers begin there."""
_READS_AT_ONCE = 16


class DamagedCommit(Exception):
    """Bytes that are no object of this kind, a damaged one, or one of a newer version."""


class ManifestCommit(NamedTuple):
    """One change of a partition's manifest."""

    topic_id: UUID
    partition: int
    sequence: int
    is_whole: bool
    """Whether `added` is the whole manifest."""
    removed: tuple[UUID, ...]
    added: tuple[ArchivedSegment, ...]
    end: int
    """End of all records ever archived, as far as the writer knew: an empty log continues there."""
    log_start: int = 0
    """Offset below which records were deleted."""


class TopicObject(NamedTuple):
    """A topic as of an entry of the metadata log, `sequence`."""

    id: UUID
    name: str
    partitions: int
    configs: Mapping[str, str]
    next_producer_id: int
    """Producer ids below this one may have been given out."""
    replication_factor: int = 1
    is_deleted: bool = False
    sequence: int = 0
    """Index of the metadata log: in the name of the object only."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Manifest of one partition as of the last commit that can be read.

    `archive` has no uploads and no removed segments. `gaps` are commits that are missing or damaged: their changes are
    unknown, unless a later commit has the whole manifest.
    """

    archive: PartitionArchive
    gaps: tuple[int, ...] = ()
    newest: int = 0
    """Sequence of the newest commit, readable or not."""
    end: int = 0
    """End of all records ever archived, according to the commits."""


def commit_content(topic_id: UUID, partition: int, before: PartitionArchive | None, after: PartitionArchive) -> bytes:
    """Return the content of commit `after.sequence`.

    `before` is the manifest as of the sequence before; None, or any other manifest, makes a commit with all segments:
    always right, but longer.
    """
    is_whole = before is None or before.sequence + 1 != after.sequence or after.sequence % WHOLE_EVERY == 0
    was = frozenset() if before is None or is_whole else frozenset(before.segments)
    now = frozenset(after.segments)
    removed_ends = [one.end_offset for one in after.removed]
    return sealed(
        {
            "format": FORMAT,
            "topic_id": str(topic_id),
            "partition": partition,
            "sequence": after.sequence,
            "is_whole": is_whole,
            "removed": sorted(str(one.id) for one in was - now),
            "added": [_segment_fields(one) for one in after.segments if one not in was],
            "end": max(after.end or 0, 0 if before is None else before.end or 0, *removed_ends),
            "log_start": after.log_start,
        }
    )


def decode_commit(content: bytes) -> ManifestCommit:
    """Return the commit. Raises DamagedCommit."""
    body = opened(content)
    try:
        return ManifestCommit(
            UUID(body["topic_id"]),
            int(body["partition"]),
            int(body["sequence"]),
            bool(body["is_whole"]),
            tuple([UUID(one) for one in body["removed"]]),
            tuple([_segment(one) for one in body["added"]]),
            int(body["end"]),
            int(body.get("log_start", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCommit(f"not a commit: {error!r}") from None


def topic_content(topic: TopicObject) -> bytes:
    """Return the content of a topic object; `topic.sequence` is in its name only."""
    return sealed(
        {
            "format": FORMAT,
            "topic_id": str(topic.id),
            "name": topic.name,
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
            "next_producer_id": topic.next_producer_id,
            "replication_factor": topic.replication_factor,
            "is_deleted": topic.is_deleted,
        }
    )


def decode_topic(content: bytes, sequence: int = 0) -> TopicObject:
    """Return the topic. Raises DamagedCommit."""
    body = opened(content)
    try:
        return TopicObject(
            UUID(body["topic_id"]),
            str(body["name"]),
            int(body["partitions"]),
            {str(key): str(value) for key, value in body["configs"].items()},
            int(body["next_producer_id"]),
            int(body["replication_factor"]),
            bool(body["is_deleted"]),
            sequence,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedCommit(f"not a topic: {error!r}") from None


async def read_clusters(store: ObjectStore) -> list[str]:
    """Return the ids of the clusters with an archive in the store."""
    return sorted({one.name.split("/")[1] for one in await store.list(layout.TOPICS)})


async def read_topics(store: ObjectStore, cluster_id: str) -> list[TopicObject]:
    """Return the newest readable object of each topic, deleted ones included, by name. Raises StoreError."""
    by_topic: dict[UUID, list[int]] = {}
    for one in await store.list(layout.topics_prefix(cluster_id)):
        found = layout.topic_in(cluster_id, one.name)
        if found is not None:
            by_topic.setdefault(found[0], []).append(found[1])
    limit = asyncio.Semaphore(_READS_AT_ONCE)

    async def newest(topic_id: UUID) -> TopicObject | None:
        async with limit:
            return await _newest(store, cluster_id, topic_id, by_topic[topic_id])

    topics = await asyncio.gather(*map(newest, by_topic))
    return sorted([topic for topic in topics if topic is not None], key=lambda topic: (topic.name, str(topic.id)))


async def read_chain(store: ObjectStore, cluster_id: str, topic_id: UUID, partition: int) -> Chain:
    """Return the manifest of a partition as of its newest readable commit. Raises StoreError."""
    prefix = layout.commits_prefix(cluster_id, topic_id, partition)
    listed = [sequence for one in await store.list(prefix) if (sequence := layout.sequence_in(one.name)) is not None]
    newest = max(listed, default=0)
    begin = newest - newest % WHOLE_EVERY
    # The commit to begin with may lack or be damaged, and then the ones before it are needed.
    while True:
        commits = await read_commits(store, cluster_id, topic_id, partition, [at for at in listed if at >= begin])
        # A list may lack the newest objects.
        while (more := await _commit(store, cluster_id, topic_id, partition, newest + 1)) is not None:
            newest += 1
            commits[newest] = more
        earlier = [at for at in listed if at < begin]
        if not earlier or any(one.is_whole for one in commits.values()):
            return _folded(commits, begin, newest)
        begin = max(0, begin - WHOLE_EVERY)


def _folded(commits: Mapping[int, ManifestCommit], begin: int, newest: int) -> Chain:
    """Return the manifest that the commits make, up to the first gap that no whole commit follows."""
    archive = PartitionArchive()
    if begin > 0 or (commits and 1 not in commits):
        archive = PartitionArchive(sequence=-1)
    gaps = []
    for at in range(max(begin, 1), newest + 1):
        commit = commits.get(at)
        if commit is None:
            gaps.append(at)
        elif commit.is_whole:
            archive, gaps = PartitionArchive(commit.added, sequence=at, log_start=commit.log_start), []
        elif archive.sequence == at - 1:
            removed = set(commit.removed)
            kept = [one for one in archive.segments if one.id not in removed]
            segments = sorted([*kept, *commit.added], key=lambda one: one.start_offset)
            archive = PartitionArchive(tuple(segments), sequence=at, log_start=commit.log_start)
    if archive.sequence < 0:
        archive = PartitionArchive()
    end = max((commit.end for commit in commits.values() if commit.sequence <= archive.sequence), default=0)
    return Chain(archive, tuple(gaps), newest, end)


async def read_commits(
    store: ObjectStore, cluster_id: str, topic_id: UUID, partition: int, sequences: Sequence[int]
) -> dict[int, ManifestCommit]:
    """Return the readable ones of these commits by sequence. Raises StoreError."""
    limit = asyncio.Semaphore(_READS_AT_ONCE)

    async def one(sequence: int) -> ManifestCommit | None:
        async with limit:
            return await _commit(store, cluster_id, topic_id, partition, sequence)

    found = await asyncio.gather(*map(one, sequences))
    return {commit.sequence: commit for commit in found if commit is not None}


async def _commit(
    store: ObjectStore, cluster_id: str, topic_id: UUID, partition: int, sequence: int
) -> ManifestCommit | None:
    """Return a commit; None if it is missing or damaged."""
    try:
        commit = decode_commit(await store.get(layout.commit_name(cluster_id, topic_id, partition, sequence)))
    except (ObjectMissing, DamagedCommit):
        return None
    return commit if (commit.topic_id, commit.partition, commit.sequence) == (topic_id, partition, sequence) else None


async def _newest(store: ObjectStore, cluster_id: str, topic_id: UUID, sequences: Sequence[int]) -> TopicObject | None:
    for sequence in sorted(sequences, reverse=True):
        try:
            return decode_topic(await store.get(layout.topic_name(cluster_id, topic_id, sequence)), sequence)
        except (ObjectMissing, DamagedCommit):
            continue
    return None


def _segment_fields(segment: ArchivedSegment) -> dict[str, Any]:
    return {one.name: _plain(getattr(segment, one.name)) for one in fields(ArchivedSegment)}


def _plain(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


def _segment(body: Mapping[str, Any]) -> ArchivedSegment:
    return ArchivedSegment(**{**body, "id": UUID(body["id"])})


def sealed(body: Mapping[str, object]) -> bytes:
    """Return the body as JSON, with its CRC-32C."""
    return json.dumps({"body": body, "crc32c": _crc_of(body)}, indent=1).encode()


def opened(content: bytes) -> dict[str, Any]:
    """Return the body of an object that `sealed` has made. Raises DamagedCommit."""
    try:
        whole = json.loads(content)
        body = whole["body"]
        is_sound, version = whole["crc32c"] == _crc_of(body), body["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCommit(f"not JSON with a checksum: {error!r}") from None
    if not is_sound:
        raise DamagedCommit("the content does not match its checksum")
    if version != FORMAT:
        raise DamagedCommit(f"format {version} is newer than this version of Cordwood, which supports {FORMAT}")
    assert isinstance(body, dict), "it has a format"
    return body


def _crc_of(body: Mapping[str, object]) -> int:
    return crc32c(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
