"""Which segments may go: a pure decision over sizes, ages and offsets."""

from collections.abc import Sequence
from typing import Protocol

from cordwood.storage.config import LogConfig


class Aged(Protocol):
    """What retention looks at in a segment. `max_timestamp` in milliseconds, -1 if unknown."""

    size: int
    end_offset: int

    @property
    def max_timestamp(self) -> int: ...


def droppable(segments: Sequence[Aged], config: LogConfig, log_start: int, high_watermark: int, now_ms: int) -> int:
    """How many segments from the front are no longer wanted. The last may be among them: then a new one is begun.

    A segment goes when all of it lies below the log's start (DeleteRecords), when it has outlived `retention.ms`, or
    when the log without it still has `retention.bytes`; never when some of it is not yet committed, and the active one
    only for age.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for place, segment in enumerate(segments):
        is_active = place == len(segments) - 1
        if segment.end_offset > high_watermark:
            break
        if not segment.size and not is_active:
            # Nothing is left of it, not even its age: it goes with the one behind it.
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
    # Records may come without a time; then nothing tells how old they are.
    is_timed = segment.max_timestamp >= 0
    return config.retention_ms >= 0 and is_timed and now_ms - segment.max_timestamp > config.retention_ms
