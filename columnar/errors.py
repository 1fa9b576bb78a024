"""Errors of reads of record batches, with messages for the user."""

from cordwood.columnar.ranges import OffsetRange
from cordwood.storage.types import TopicPartition


class ReadError(Exception):
    """The base class of read errors."""


class CorruptRecords(ReadError):
    """Bytes from a broker or an archive are not valid record batches."""

    def __init__(self, place: TopicPartition, offset: int, what: str) -> None:
        super().__init__(f"{place} has a damaged batch at or after offset {offset}: {what}")
        self.place, self.offset, self.what = place, offset, what


class OldFormat(ReadError):
    """Records are in a message format before Kafka 0.11."""


class OffsetsGone(ReadError):
    """Wanted records are no longer in the log, or the topic was recreated.

    `gone` is the missing range. `gone.end` is the offset to continue at: the log start offset, or the end of the wanted
    range.
    """

    def __init__(self, gone: OffsetRange, why: str) -> None:
        super().__init__(f"{gone.place} has lost the records from offset {gone.start} to {gone.end}: {why}")
        self.gone, self.why = gone, why
