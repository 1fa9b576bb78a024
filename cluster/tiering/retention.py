"""Retention of a whole topic, archive and disk together: the log start offset that age and size lead to. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cordwood.archive.manifest import PartitionArchive
from cordwood.storage.config import LogConfig


class LocalSegment(NamedTuple):
    """A segment of the leader's log. `size` in bytes, `max_timestamp` in milliseconds, -1 if no record has one."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    is_sealed: bool = True


class _Stretch(NamedTuple):
    """Records that are kept or deleted together."""

    end_offset: int
    size: int
    max_timestamp: int
    may_go: bool


def retained_from(
    archive: PartitionArchive,
    segments: Sequence[LocalSegment],
    config: LogConfig,
    high_watermark: int,
    now_ms: int,
    pinned_from: int | None = None,
) -> int:
    """Return the offset below which the topic's retention deletes everything; 0 if it deletes nothing.

    A byte that is both on disk and in the archive counts once: it must not lead to a deletion twice. Nothing is deleted
    that is not committed, that is in the active segment, or at and above `pinned_from`.
    """
    if not config.deletable:
        return 0
    stretches = list(_stretches(archive, segments, config))
    # Below 0 even without records, so that no segment is excess.
    excess = sum(stretch.size for stretch in stretches) - config.retention_bytes if config.retention_bytes >= 0 else -1
    start = 0
    for stretch in stretches:
        has_aged = config.retention_ms >= 0 and 0 <= stretch.max_timestamp < now_ms - config.retention_ms
        is_kept = stretch.end_offset > high_watermark or (pinned_from is not None and stretch.end_offset > pinned_from)
        if is_kept or not stretch.may_go or not (has_aged or stretch.size <= excess):
            break
        excess -= stretch.size
        start = stretch.end_offset
    return start


def _stretches(archive: PartitionArchive, segments: Sequence[LocalSegment], config: LogConfig) -> Iterator[_Stretch]:
    """Yield archived and local segments in order, each range once.

    A segment that begins within the one before it counts as empty: how many of its bytes are new is not known, and
    retention by size must not delete too early.
    """
    archived_end = archive.end if archive.end is not None else -1
    for one in archive.segments:
        yield _Stretch(one.end_offset, one.size if one.base_offset == one.start_offset else 0, one.max_timestamp, True)
    for local in segments:
        if local.end_offset > archived_end:
            size = local.size if local.base_offset >= archived_end else 0
            # For a topic without an archive, retention of the log deletes segments on disk.
            yield _Stretch(local.end_offset, size, local.max_timestamp, local.is_sealed and config.is_archived)
