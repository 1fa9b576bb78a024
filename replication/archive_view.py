"""Archive of a replica's log, as replication uses it: its end, and the state of a log that begins after its records."""

from typing import TYPE_CHECKING, Protocol

from cordwood.storage.errors import OutOfResources
from cordwood.storage.state import ArchivedBeginning

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition


class ArchiveUnavailable(OutOfResources):
    """The archive does not answer, or this broker does not know yet what is in it. Nothing is lost."""


class ArchiveView(Protocol):
    """The archive of all partitions."""

    def end_of(self, partition: "Partition") -> int | None:
        """Return the end of a partition's archived offsets; None if nothing is archived."""
        ...

    def first_kept(self, partition: "Partition") -> int:
        """Return the first offset that the archive or the disk may have; the log start offset if that is unknown."""
        ...

    async def beginning(self, partition: "Partition", log_start: int, offset: int) -> ArchivedBeginning:
        """Return what a log that begins at `offset` has to know of the records from `log_start` on.

        Raises ArchiveUnavailable.
        """
        ...


class NoArchive:
    """The archive of a broker without one."""

    def end_of(self, _partition: "Partition") -> int | None:
        return None

    def first_kept(self, partition: "Partition") -> int:
        return partition.log.log_start

    async def beginning(self, _partition: "Partition", log_start: int, offset: int) -> ArchivedBeginning:
        raise ArchiveUnavailable(f"offsets {log_start} to {offset} are in an archive, and this broker has none")
