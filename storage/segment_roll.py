"""Segment roll: when the active segment is full, and which directory entries a new segment needs on disk."""

from cordwood.storage.config import LogConfig
from cordwood.storage.segment import Segment

OFFSETS_PER_SEGMENT_MAX = (1 << 32) - 1


def is_full(active: Segment, config: LogConfig, size: int, max_timestamp: int, end: int) -> bool:
    """Return whether a batch of `size` bytes, up to offset `end`, goes to a new segment."""
    return active.size > 0 and (
        active.size + size > config.segment_bytes
        or active.index_bytes() >= config.index_bytes_max
        or end - active.base_offset > OFFSETS_PER_SEGMENT_MAX
        or max_timestamp - active.first_timestamp > config.segment_ms
    )


def directories_to(directory: str) -> tuple[str, ...]:
    """Return the directories whose entries lead to a new log's files: the log's, its topic's, the topics'.

    All of them, even if they exist: an earlier process may have made them and crashed before their sync.
    """
    topic = directory.rpartition("/")[0]
    return directory, topic or "/", topic.rpartition("/")[0] or "/"
