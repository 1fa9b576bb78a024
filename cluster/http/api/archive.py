"""The archive over HTTP: the archived range of each partition, and the backlog of this broker."""

from typing import Annotated

import msgspec

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DESCRIBE_TOPIC
from cordwood.cluster.metadata.image import NO_LEADER, TopicImage
from cordwood.cluster.tiering.archiver import NOTHING_MEASURED
from cordwood.cluster.tiering.backlog import backlog_of
from cordwood.cluster.tiering.situations import NOTHING

ROWS_MAX = 10_000
"""The limit of rows in a response, which is encoded in one step of a few milliseconds."""
ROWS_DEFAULT = 1000


class ArchiveQuery(msgspec.Struct, frozen=True):
    """The selection of partitions."""

    topic: list[str] = []
    """May be repeated; without it, all topics."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS_DEFAULT
    """The maximum number of partitions in the response."""


class ArchivedPartition(msgspec.Struct, frozen=True):
    """The archived range of a partition. Offsets are half-open: an end is the next offset."""

    topic: str
    partition: int
    leader: int | None
    start: int | None
    """The first archived offset; null if nothing is archived."""
    end: int | None
    segments: int
    bytes: int
    uploads: int
    """Uploads that are announced and not complete."""
    removed: int
    """Removed segments whose objects are still to be deleted."""
    local_start: int | None
    """The first offset on the leader's disk; null if this broker does not lead the partition."""
    backlog_segments: int | None
    """Sealed segments that are not archived yet; null if this broker does not lead the partition."""
    backlog_bytes: int | None


class ArchiveStatus(msgspec.Struct, frozen=True):
    """The archive in this broker's metadata, and this broker's uploads since its start."""

    broker_id: int
    has_archive: bool
    """Whether archive.url is set on this broker."""
    failure: str | None
    """The reason why the last use of the object store failed; null if it succeeded."""
    uploaded_segments: int
    uploaded_bytes: int
    partitions: list[ArchivedPartition]
    total: int
    """The number of partitions that match; the response may have fewer."""


async def describe_archive(asked: ApiRequest[ArchiveQuery, Nothing]) -> ArchiveStatus:
    """Describe the archive, partition by partition."""
    context, query = asked.context, asked.query
    topics = [topic for topic in await context.topics(internal=True) if not query.topic or topic.name in query.topic]
    rows: list[ArchivedPartition] = []
    total = 0
    async for topic, index in context.turns.within((topic, range(len(topic.partitions))) for topic in topics):
        row = _row(topic, index, context)
        if row is not None:
            total += 1
            if len(rows) < query.limit:
                rows.append(row)
    watched = context.watched
    archiving = watched.archiving
    measures = NOTHING_MEASURED if archiving is None else archiving.measures
    return ArchiveStatus(
        broker_id=int(watched.broker_id),
        has_archive=archiving is not None and archiving.store is not None,
        failure=measures.failure or None,
        uploaded_segments=measures.uploaded_segments,
        uploaded_bytes=measures.uploaded_bytes,
        partitions=rows,
        total=total,
    )


def _row(topic: TopicImage, index: int, context: Context) -> ArchivedPartition | None:
    """Return the row of a partition; None if it has no archive and is not to have one."""
    archive: PartitionArchive = context.image.archives.get((topic.id, index), NOTHING)
    held = context.watched.replicas.with_id(topic.id, index)
    log = held.log if held is not None and held.is_leader else None
    if not archive.has_objects and (held is None or not held.log.config.is_archived):
        return None
    leader = topic.partitions[index].leader
    backlog = None if log is None else backlog_of(log, archive)
    return ArchivedPartition(
        topic=topic.name,
        partition=index,
        leader=None if leader == NO_LEADER else int(leader),
        start=archive.start,
        end=archive.end,
        segments=len(archive.segments),
        bytes=archive.size,
        uploads=len(archive.uploads),
        removed=len(archive.removed),
        local_start=None if log is None else log.local_start,
        backlog_segments=None if backlog is None else backlog.segments,
        backlog_bytes=None if backlog is None else backlog.size,
    )


ROUTES = (
    Route(
        "GET",
        "/v1/archive",
        describe_archive,
        ArchiveQuery,
        Nothing,
        ArchiveStatus,
        requires=(),
        each=(DESCRIBE_TOPIC,),
        refusals=(503,),
    ),
)
