"""Errors of storage, and which of three kinds an OSError of the disk is: lacking resources, a broken disk, or damage.

Lacking resources (OutOfResources) says nothing against the disk: the operation is refused and tried again later. A
broken disk (DiskFailed) takes its log directory offline. Damage (DamagedLog) costs the range in which it lies.
"""

import errno

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR, errno.EFBIG})
"""Limits of the process or the machine."""
_UNREADABLE = frozenset({errno.EIO, errno.ENOENT, errno.ENODATA, errno.EILSEQ, errno.EBADMSG, errno.EUCLEAN})
"""From reads: the medium, or the file system's own checksums, gave up these bytes; or the whole file is gone."""


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


class OutOfResources(StorageError):
    """Descriptors, memory or room are lacking for now. Nothing was given up, and the same may be tried again."""


class DiskFull(OutOfResources):
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
    """A write or a sync failed: the log directory is offline, and nothing is tried again on it."""


class SyncFailed(OSError):
    """A sync failed. Whatever the reason: what it covered may be lost, and later syncs do not say so."""


def change_failed(error: OSError) -> OutOfResources | DiskFailed:
    """The kind of error of a failed write, sync, creation, rename or removal."""
    if isinstance(error, SyncFailed):
        return DiskFailed(str(error))
    if error.errno in _NO_ROOM:
        return DiskFull(str(error))
    return OutOfResources(str(error)) if error.errno in _LACKING else DiskFailed(str(error))


def read_failed(error: OSError, path: str, position: int) -> OutOfResources | DamagedLog | DiskFailed:
    """The kind of error of a failed read of the file at `path` from byte `position` on, or of a failure to open it."""
    if error.errno in _UNREADABLE:
        return DamagedLog(path, position, f"the disk cannot read it: {error.strerror}")
    return change_failed(error)


def damage_of(error: OSError, path: str, position: int) -> DamagedLog:
    """The damage that a failed read has found. Raises OutOfResources, DiskFailed: those say nothing of the bytes."""
    failure = read_failed(error, path, position)
    if not isinstance(failure, DamagedLog):
        raise failure from error
    return failure
