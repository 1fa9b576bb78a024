"""Retention: the segments to delete by size, age and log start offset. A pure decision."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cordwood.storage.config import LogConfig

ALL_OF_IT = -2
"""A local retention that is the topic's retention."""


class AgedSegment(Protocol):
    """Attributes of a segment that retention uses. `max_timestamp` in milliseconds, -1 if unknown."""

    size: int
    end_offset: int

    @property
    def max_timestamp(self) -> int: ...


class _Limits(NamedTuple):
    """Largest age and size, -1 for none, and the end of what may be deleted for them."""

    age_ms: int
    size: int
    end: int


def droppable(
    segments: Sequence[AgedSegment],
    config: LogConfig,
    log_start: int,
    high_watermark: int,
    now_ms: int,
    archived_end: int | None = None,
) -> int:
    """Return how many of the oldest segments to delete. If the last is one of them, a new segment is rolled.

    A segment is deleted when all of it is below the log start offset (DeleteRecords), when it is older than
    `retention.ms`, or when the log without it still has `retention.bytes`. A segment with uncommitted records is never
    deleted, and the active segment only by age. Of an archived topic the limits are those of this disk, and only
    records in the archive, below `archived_end`, are deleted for them. A replica that does not know that end deletes
    nothing.
    """
    limits = _limits(config, high_watermark, archived_end)
    excess = sum(segment.size for segment in segments) - limits.size if limits.size >= 0 else 0
    count = 0
    for place, segment in enumerate(segments):
        is_active = place == len(segments) - 1
        if segment.end_offset > high_watermark:
            break
        if not segment.size and not is_active:
            # An empty segment has no age: it is deleted together with the segment after it.
            continue
        if not segment.size:
            break
        below_start = segment.end_offset <= log_start and not is_active
        may_go = segment.end_offset <= limits.end
        too_large = may_go and segment.size <= excess and not is_active
        if not below_start and not too_large and not (may_go and _has_aged(segment, limits, now_ms)):
            break
        excess -= segment.size
        count = place + 1
    return count


def _limits(config: LogConfig, high_watermark: int, archived_end: int | None) -> _Limits:
    if not config.is_archived:
        return _Limits(config.retention_ms, config.retention_bytes, high_watermark if config.deletable else -1)
    age_ms = config.retention_ms if config.local_retention_ms == ALL_OF_IT else config.local_retention_ms
    size = config.retention_bytes if config.local_retention_bytes == ALL_OF_IT else config.local_retention_bytes
    # Archive rule 1. The log cleaner needs the whole of a compacted log.
    return _Limits(age_ms, size, -1 if config.compacted or archived_end is None else archived_end)


def _has_aged(segment: AgedSegment, limits: _Limits, now_ms: int) -> bool:
    # Records may have no timestamp; then their age is unknown.
    is_timed = segment.max_timestamp >= 0
    return limits.age_ms >= 0 and is_timed and now_ms - segment.max_timestamp > limits.age_ms
