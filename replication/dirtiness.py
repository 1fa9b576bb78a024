"""Dirtiness of a log: which part the log cleaner may compact now, and whether that is due. A pure decision.

The rules are Kafka's (`LogCleanerManager`): a log is due when the dirty part of what may be compacted is larger than
`min.cleanable.dirty.ratio` of it, or when a record in it is older than `max.compaction.lag.ms`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cordwood.storage.config import LogConfig
from cordwood.storage.retention import AgedSegment


class DatedSegment(AgedSegment, Protocol):
    """Attributes of a segment that the decision uses. Timestamps in milliseconds, -1 if unknown."""

    base_offset: int
    first_timestamp: int


class Dirtiness(NamedTuple):
    """The part of a log to compact: offsets from `start` up to `end`, in whole segments."""

    start: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """By how much the oldest dirty record exceeds `max.compaction.lag.ms`; 0 if it does not."""

    @property
    def ratio(self) -> float:
        """Share of the dirty bytes."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio)


def dirtiness_of(
    segments: Sequence[DatedSegment], config: LogConfig, clean_end: int, stable_end: int, now_ms: int
) -> Dirtiness:
    """Return what may be compacted of a log that is compacted up to `clean_end`.

    Only whole segments below `stable_end` may be: no record that is uncommitted, or part of an open transaction. The
    active segment is never compacted, nor is anything from the first segment on that has a record younger than
    `min.compaction.lag.ms`.
    """
    start = end = max(clean_end, segments[0].base_offset) if segments else clean_end
    clean_bytes = dirty_bytes = 0
    oldest = now_ms
    for segment in segments[:-1]:
        if segment.end_offset <= start:
            clean_bytes += segment.size
            continue
        if segment.end_offset > stable_end or _is_young(segment, config, now_ms):
            break
        dirty_bytes += segment.size
        end = segment.end_offset
        if segment.first_timestamp >= 0:
            oldest = min(oldest, segment.first_timestamp)
    overdue_ms = max(now_ms - oldest - config.max_compaction_lag_ms, 0)
    return Dirtiness(start, end, clean_bytes, dirty_bytes, overdue_ms)


def must_be_sealed(active: DatedSegment, config: LogConfig, roll_bytes: int | None, now_ms: int) -> bool:
    """Return whether the active segment is to be sealed without waiting for an append, so that it can be compacted.

    That is so once a record in it exceeds `max.compaction.lag.ms`, or once it has `roll_bytes`.
    """
    if not active.size:
        return False
    if roll_bytes is not None and active.size >= roll_bytes:
        return True
    return active.first_timestamp >= 0 and now_ms - active.first_timestamp > config.max_compaction_lag_ms


def dirtiest(candidates: Sequence[tuple[Dirtiness, LogConfig]]) -> int | None:
    """Return the number of the candidate to compact first: the one of the highest ratio; None if none is due."""
    due = [number for number, (dirt, config) in enumerate(candidates) if dirt.is_due(config)]
    return max(due, key=lambda number: candidates[number][0].ratio, default=None)


def _is_young(segment: DatedSegment, config: LogConfig, now_ms: int) -> bool:
    return config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
