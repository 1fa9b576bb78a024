"""Backlog of a partition: the sealed segments that are not archived yet."""

from typing import NamedTuple

from cordwood.archive.manifest import PartitionArchive
from cordwood.storage.log import Log


class Backlog(NamedTuple):
    """Number and bytes of the sealed segments that are still to be archived."""

    segments: int
    size: int


def backlog_of(log: Log, archive: PartitionArchive) -> Backlog:
    """Return the backlog of a partition in the state of its leader.

    Segments that still wait for a reason count, too.
    """
    if not log.config.is_archived:
        return Backlog(0, 0)
    begin = max(archive.end or 0, log.log_start)
    sizes = [segment.size for segment in log.segments if segment.is_sealed and segment.end_offset > begin]
    return Backlog(len(sizes), sum(sizes))
