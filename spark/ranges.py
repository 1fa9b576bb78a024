"""Which part of the log is meant: partitions, half-open ranges of offsets, and who may see what of them."""

from dataclasses import dataclass
from enum import IntEnum

EARLIEST, LATEST = -2, -1
"""What ListOffsets takes in place of a time in ms: where a partition begins, and where a reader's view of it ends."""


class Isolation(IntEnum):
    """How far a reader sees, as Fetch and ListOffsets say it: to the high watermark or to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; they sort by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets from `start` up to and without `end` of a partition: what one task reads."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        """The partition that this is a part of."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """How many offsets: there may be fewer records, after compaction or among transactions."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"
