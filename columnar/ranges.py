"""Half-open offset ranges, and isolation levels."""

from dataclasses import dataclass
from enum import IntEnum

from cordwood.storage.types import TopicPartition

EARLIEST, LATEST = -2, -1
"""Special timestamps of ListOffsets: the log start offset, and the end that the isolation level makes visible."""


class Isolation(IntEnum):
    """The isolation level of Fetch and ListOffsets: up to the high watermark, or up to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The number of offsets. There may be fewer records, because of compaction or transactions."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"
