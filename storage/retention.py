"""Retention: the segments to delete by size, age and log start offset. A pure decision."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.storage.config import LogConfig


class Aged(Protocol):
    """Attributes of a segment that retention uses. `max_timestamp` in milliseconds, -1 if unknown."""

    size: int
    end_offset: int

    @property
    def max_timestamp(self) -> int: ...


def droppable(segments: Sequence[Aged], config: LogConfig, log_start: int, high_watermark: int, now_ms: int) -> int:
    """Return how many of the oldest segments to delete. If the last is one of them, a new segment is rolled.

    A segment is deleted when all of it is below the log start offset (DeleteRecords), when it is older than
    `retention.ms`, or when the log without it still has `retention.bytes`; never when some of it is not committed, and
    the active segment only by age.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
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
        too_large = config.deletable and segment.size <= excess and not is_active
        if not below_start and not too_large and not (config.deletable and _has_aged(segment, config, now_ms)):
            break
        excess -= segment.size
        count = place + 1
    return count


def _has_aged(segment: Aged, config: LogConfig, now_ms: int) -> bool:
    # Records may have no timestamp; then their age is unknown.
    is_timed = segment.max_timestamp >= 0
    return config.retention_ms >= 0 and is_timed and now_ms - segment.max_timestamp > config.retention_ms
