"""Storage errors, and the three kinds of OSError of a disk: lacking resources, a broken disk, damage.

Lacking resources (OutOfResources): the disk is sound; the operation is refused and may be retried. A broken disk
(DiskFailed): the log directory goes offline. Damage (DamagedLog): only the damaged range is affected.
"""

import errno
from collections.abc import Sequence

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR, errno.EFBIG})
"""Limits of the process or the machine."""
_UNREADABLE = frozenset({errno.EIO, errno.ENOENT, errno.ENODATA, errno.EILSEQ, errno.EBADMSG, errno.EUCLEAN})
"""Errors of reads: the medium or the file system's checksums rejected the bytes, or the file is missing."""


class StorageError(Exception):
    """Base class of storage errors. Each becomes a Kafka error code in a response; none stops the broker."""


class CorruptBatch(StorageError):
    """A batch that is not a whole, checksummed RecordBatch v2, or whose offset or leader epoch does not fit the log."""


class InvalidRecord(StorageError):
    """A valid batch that this log does not accept: a control batch from a client, a missing key."""


class KeysMissing(InvalidRecord):
    """Records without a key for a compacted topic. `records` are their numbers within the batch, at most so many."""

    def __init__(self, records: Sequence[int]) -> None:
        super().__init__("records of a compacted topic must have a key")
        self.records = records


class InvalidTimestamp(StorageError):
    """A timestamp further from the broker's clock than the topic allows."""


class BatchTooLarge(StorageError):
    """A batch of more than `max.message.bytes`."""


class OffsetOutOfRange(StorageError):
    """An offset below the log start offset or above the log end offset."""


class NotLocal(OffsetOutOfRange):
    """An offset of the log whose records are only in the archive."""


class OutOfOrderSequence(StorageError):
    """A gap in an idempotent producer's sequence numbers."""


class StaleProducerEpoch(StorageError):
    """A producer epoch that was fenced by a newer producer with the same id."""


class TransactionCoordinatorFenced(StorageError):
    """A marker of a transaction coordinator that a later coordinator of the same producer has replaced."""


class InvalidTransactionState(StorageError):
    """A batch outside of its producer's transaction: not transactional within one, or not verified to begin one."""


class OutOfResources(StorageError):
    """Descriptors, memory or disk space are lacking for now. Nothing is lost, and the operation may be retried."""


class DiskFull(OutOfResources):
    """Too little disk space for more records; reads go on."""


class TruncationUnsynced(OutOfResources):
    """A truncation of the log is not on disk yet: the log takes appends once it is (disk rule 7)."""


class DamagedLog(StorageError):
    """Bytes on disk that differ from what was written. They are never served."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {what}")
        self.path, self.position, self.what = path, position, what


class Unfinished(DamagedLog):
    """A file beside the segments that is sound but incomplete, or missing: a crash kept the rest from the disk."""


class LostTail(DamagedLog):
    """Loss of all records from `offset` on: their offsets were in use, and nothing else is known of them."""

    def __init__(self, path: str, position: int, what: str, offset: int) -> None:
        super().__init__(path, position, what)
        self.offset = offset


class ForeignSegment(DamagedLog):
    """A segment file in a log's directory that does not belong to the log."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, "according to the manifest, its records belong to another segment")


class NotInMemory(Exception):
    """A read that may not block would have to wait for the disk."""


class Truncated(StorageError):
    """The log was truncated after a slice of it was given out: the bytes of the slice are removed or replaced."""


class DiskFailed(StorageError):
    """A write or a sync failed: the log directory is offline, and no operation on it is retried."""


class SyncFailed(OSError):
    """A failed sync. Whatever the errno, the covered changes may be lost, and later syncs do not report that."""


def change_failed(error: OSError) -> OutOfResources | DiskFailed:
    """Return the kind of error of a failed write, sync, creation, rename or removal."""
    if isinstance(error, SyncFailed):
        return DiskFailed(str(error))
    if error.errno in _NO_ROOM:
        return DiskFull(str(error))
    return OutOfResources(str(error)) if error.errno in _LACKING else DiskFailed(str(error))


def read_failed(error: OSError, path: str, position: int) -> OutOfResources | DamagedLog | DiskFailed:
    """Return the kind of error of a failed read of the file at `path` from byte `position` on, or of a failed open."""
    if error.errno in _UNREADABLE:
        return DamagedLog(path, position, f"the disk cannot read it: {error.strerror}")
    return change_failed(error)


def damage_of(error: OSError, path: str, position: int) -> DamagedLog:
    """Return the damage that a failed read found. Raises OutOfResources, DiskFailed: these are no damage."""
    failure = read_failed(error, path, position)
    if not isinstance(failure, DamagedLog):
        raise failure from error
    return failure
