"""What can keep a reader from its records, each in a sentence for the person who asked for them."""

from cordwood.spark.ranges import OffsetRange, TopicPartition


class ReadError(Exception):
    """Any of these."""


class Unavailable(ReadError):
    """What was wanted could not be had, again and again, for as long as `retryTimeoutMs` allows."""


class RequestRefused(ReadError):
    """A broker said no, and will say no again: no permission, a topic name that cannot be, a protocol too old."""


class OffsetsGone(ReadError):
    """Records that were to be read are not in the log any more, or the log that had them is not.

    `gone` is what is missing, up to where reading can go on: `gone.end` is the first offset that is there, or the end
    of what was to be read.
    """

    def __init__(self, gone: OffsetRange, why: str) -> None:
        super().__init__(f"{gone.place} has lost what was to be read from offset {gone.start} to {gone.end}: {why}")
        self.gone, self.why = gone, why


class CorruptRecords(ReadError):
    """Bytes from a broker that are not the records they claim to be."""

    def __init__(self, place: TopicPartition, offset: int, what: str) -> None:
        super().__init__(f"{place} has a damaged batch at or behind offset {offset}: {what}")
        self.place, self.offset, self.what = place, offset, what


class DataLost(ReadError):
    """A stream's partition is gone, or is not the one that was read so far."""


class NotWritten(Exception):
    """Records that the cluster did not take, or did not confirm in time: they may or may not be in the log."""
