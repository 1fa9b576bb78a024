"""Metrics of the archive. A broker without one reports zeros."""

from collections.abc import Callable

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.http.metrics.family import Family, Rows, counter, gauge, gauges
from cordwood.cluster.http.watched import Watched
from cordwood.cluster.tiering.archiver import NOTHING_MEASURED
from cordwood.cluster.tiering.backlog import backlog_of
from cordwood.cluster.tiering.measures import ArchiveMeasures
from cordwood.cluster.tiering.situations import NOTHING
from cordwood.replication.partition import Partition


def _measures(watched: Watched) -> ArchiveMeasures:
    return NOTHING_MEASURED if watched.archiving is None else watched.archiving.measures


def _read_bytes(watched: Watched) -> int:
    reads = None if watched.archiving is None else watched.archiving.reads
    return 0 if reads is None else reads.downloaded_bytes


def _cache_bytes(watched: Watched) -> int:
    reads = None if watched.archiving is None else watched.archiving.reads
    return 0 if reads is None else reads.cache.bytes_used


def _over_led(name: str, meaning: str, of_one: Callable[[Partition, PartitionArchive], int]) -> Family:
    """Return the family of the sum over the archived partitions that this broker leads."""

    def rows(watched: Watched) -> Rows:
        archives, total = watched.quorum.image.archives, 0
        for partition in list(watched.replicas):
            archive = archives.get((partition.topic_id, partition.index), NOTHING)
            if partition.is_leader and (archive.segments or partition.log.config.is_archived):
                total += of_one(partition, archive)
            yield None
        yield (), total

    return gauges(name, meaning, (), rows)


FAMILIES: tuple[Family, ...] = (
    counter(
        "archive_uploaded_segments",
        "Segments that this broker has uploaded to the archive.",
        lambda watched: _measures(watched).uploaded_segments,
    ),
    counter(
        "archive_uploaded_bytes",
        "Bytes of these segments.",
        lambda watched: _measures(watched).uploaded_bytes,
    ),
    counter(
        "archive_failed_steps",
        "Uploads, commits and deletions that the object store refused or did not answer. Each is tried again.",
        lambda watched: _measures(watched).failed_steps,
    ),
    counter(
        "archive_deleted_objects",
        "Objects that this broker has deleted from the archive.",
        lambda watched: _measures(watched).deleted_objects,
    ),
    counter(
        "archive_read_bytes",
        "Bytes of batches that this broker has read from the archive, for consumers and replicas.",
        _read_bytes,
    ),
    gauge(
        "archive_cache_bytes",
        "Disk space of what this broker has recently read from the archive.",
        _cache_bytes,
    ),
    gauge(
        "archive_is_failing",
        "1 if the last use of the object store has failed.",
        lambda watched: bool(_measures(watched).failure),
    ),
    _over_led(
        "archive_bytes",
        "Size of the archived segments of the partitions that this broker leads.",
        lambda _, archive: archive.size,
    ),
    _over_led(
        "archive_segments",
        "Archived segments of the partitions that this broker leads.",
        lambda _, archive: len(archive.segments),
    ),
    _over_led(
        "archive_backlog_bytes",
        "Size of the sealed segments that are not archived yet, of the partitions that this broker leads.",
        lambda partition, archive: backlog_of(partition.log, archive).size,
    ),
    _over_led(
        "archive_backlog_segments",
        "Sealed segments that are not archived yet, of the partitions that this broker leads.",
        lambda partition, archive: backlog_of(partition.log, archive).segments,
    ),
)
