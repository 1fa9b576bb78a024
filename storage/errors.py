"""What can be wrong with bytes, with a request for them, or with the disk below."""


class StorageError(Exception):
    """Any of these. Each becomes a Kafka error code at the edge; none of them stops the broker."""


class CorruptBatch(StorageError):
    """Bytes that are not a whole, checksummed RecordBatch v2, in a request or in a replica's answer."""


class InvalidRecord(StorageError):
    """A sound batch that this log may not take: a control batch from a client, a missing key."""


class InvalidTimestamp(StorageError):
    """A timestamp further from the broker's clock than the topic allows."""


class BatchTooLarge(StorageError):
    """A batch of more than `max.message.bytes`."""


class OffsetOutOfRange(StorageError):
    """An offset below the log's start or above its end."""


class OutOfOrderSequence(StorageError):
    """A gap in an idempotent producer's sequence numbers."""


class StaleProducerEpoch(StorageError):
    """A producer that has been replaced by a newer one with the same id."""


class DiskFull(StorageError):
    """Too little space is left to take more records; reads go on."""


class DamagedLog(StorageError):
    """Bytes on disk that are not what was written there: they are never served."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {what}")
        self.path, self.position, self.what = path, position, what


class LostTail(DamagedLog):
    """Everything of a log from `offset` on, of which no more is known than that it was there."""

    def __init__(self, path: str, position: int, what: str, offset: int) -> None:
        super().__init__(path, position, what)
        self.offset = offset


class ForeignSegment(DamagedLog):
    """A segment file among those of a log that does not belong to it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, "its records belong to another segment, as the manifest has it")


class Truncated(StorageError):
    """The log was cut since these bytes were promised: what stands there now is something else, or nothing."""


class DiskFailed(StorageError):
    """A read, write or sync failed: the log directory is offline, and nothing is tried again on it."""
