"""Errors of reads and writes, with messages for the user."""

from cordwood.spark.ranges import OffsetRange, TopicPartition


class ReadError(Exception):
    """The base class of read errors."""


class Unavailable(ReadError):
    """All retries failed within `retryTimeoutMs`."""


class RequestRefused(ReadError):
    """A broker refused a request with a fatal error: no permission, an invalid topic name, an old protocol."""


class OffsetsGone(ReadError):
    """Wanted records are no longer in the log, or the topic was recreated.

    `gone` is the missing range. `gone.end` is the offset to continue at: the log start offset, or the end of the wanted
    range.
    """

    def __init__(self, gone: OffsetRange, why: str) -> None:
        super().__init__(f"{gone.place} has lost the records from offset {gone.start} to {gone.end}: {why}")
        self.gone, self.why = gone, why


class CorruptRecords(ReadError):
    """Bytes from a broker are not valid record batches."""

    def __init__(self, place: TopicPartition, offset: int, what: str) -> None:
        super().__init__(f"{place} has a damaged batch at or after offset {offset}: {what}")
        self.place, self.offset, self.what = place, offset, what


class DataLost(ReadError):
    """A partition of a stream is gone, was recreated, or is new and has lost its first records."""


class NotWritten(Exception):
    """The cluster refused records, or did not acknowledge them in time: they may or may not be in the log."""
