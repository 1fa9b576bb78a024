"""Archive of a replica's log, as replication uses it: offsets, batches, and the state of a log after these batches."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from cordwood.storage.errors import OutOfResources
from cordwood.storage.state import ArchivedBeginning

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


class ArchiveUnavailable(OutOfResources):
    """The archive does not answer, or this broker has not loaded its manifest yet. Nothing is lost."""


class ArchivedRange(NamedTuple):
    """Archived offsets of a partition, half-open."""

    start: int
    end: int


class ArchiveView(Protocol):
    """The archive of all partitions."""

    def ahead_of(self, partition: "Partition") -> ArchivedRange | None:
        """Return the archived range if a log lacks records or epochs of it, or may have others; otherwise None."""
        ...

    def end_of(self, partition: "Partition") -> int | None:
        """Return the end of a partition's archived offsets; None if nothing is archived."""
        ...

    def first_kept(self, partition: "Partition") -> int:
        """Return the first offset that the archive or the disk may have; the log start offset if that is unknown."""
        ...

    async def beginning(self, partition: "Partition", log_start: int, offset: int) -> ArchivedBeginning:
        """Return the state of the records from `log_start` on for a log that begins at `offset`.

        Raises ArchiveUnavailable.
        """
        ...

    async def batches(self, partition: "Partition", offset: int, size: int) -> bytes:
        """Return about `size` bytes of batches, the first with `offset`, that the disk does not have.

        Return b"" if there are none up to the local start: a compacted log has gaps. Raises ArchiveUnavailable.
        """
        ...


class NoArchive:
    """The archive of a broker without one."""

    def ahead_of(self, _partition: "Partition") -> ArchivedRange | None:
        return None

    def end_of(self, _partition: "Partition") -> int | None:
        return None

    def first_kept(self, partition: "Partition") -> int:
        return partition.log.log_start

    async def beginning(self, _partition: "Partition", log_start: int, offset: int) -> ArchivedBeginning:
        raise ArchiveUnavailable(f"offsets {log_start} to {offset} are in an archive, and this broker has none")

    async def batches(self, _partition: "Partition", offset: int, _size: int) -> bytes:
        raise ArchiveUnavailable(f"offset {offset} is in an archive, and this broker has none")
