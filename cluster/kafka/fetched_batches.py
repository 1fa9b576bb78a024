"""Batches of one partition for a Fetch response, from the log or from the archive, and its bounds for the client."""

from cordwood.cluster.kafka.fetch_response import NOTHING, Row
from cordwood.cluster.tiering.reads import ArchiveReads, WantedRange
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused
from cordwood.storage.errors import NotLocal
from cordwood.storage.slices import Slice


def read(row: Row, partition: Partition, wanted: WantedRange, archive: ArchiveReads | None) -> Slice | None:
    """Return the wanted batches, and add the aborted transactions among them to the row.

    None if there are none yet, or if they are being downloaded from the archive. Raises one of `refusals.EXPECTED`, and
    NotInMemory.
    """
    log, offset = partition.log, wanted.offset
    # A log with unseen batches may not know the end of its last transaction, or that it has had any.
    may_have_some = log.producers.transactions.end > offset or log.unseen is not None
    with_aborted = wanted.with_aborted and may_have_some
    try:
        found = log.slice(offset, wanted.bytes_max, wanted.end, wait=wanted.wait)
    except NotLocal:
        if archive is None:
            raise
        found, row.aborted = archive.read(partition, wanted._replace(with_aborted=with_aborted))
        row.is_archived = found is not None
        return found
    if found is not None and with_aborted:
        row.aborted = log.aborted(offset, found.next_offset(wait=wanted.wait), wait=wanted.wait)
    return found


def shown_watermark(partition: Partition) -> int:
    """Return the high watermark; NOTHING from a new leader whose value may be lower than one already sent."""
    try:
        return partition.known_high_watermark()
    except PartitionRefused:
        return NOTHING


def may_be_there_soon(offset: int, partition: Partition) -> bool:
    """Return whether records at an offset past the high watermark may follow: up to the log end, or on a follower.

    The high watermark of a follower lags, and so does a new leader's: the client may have read on at another replica.
    """
    return partition.log.log_start <= offset and (offset <= partition.log.log_end or partition.leading is None)
