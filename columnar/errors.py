"""Errors of reads of record batches, with messages for the user."""

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
