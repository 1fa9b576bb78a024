"""Batches of a partition for a share group member: offsets, bytes, and places in the log or in the archive."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from cordwood.cluster.share.share_partition import LogBatch
from cordwood.cluster.share.states import AcquiredBatch
from cordwood.cluster.tiering.reads import ArchiveReads, WantedRange
from cordwood.replication.partition import Partition
from cordwood.storage.aborted_index import AbortedTransaction
from cordwood.storage.batch import BatchHeader, peek
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import NotLocal
from cordwood.storage.slices import Slice

PIECE_BYTES = 64 << 10
PIECES_BYTES_MAX = 64 << 10
"""Up to this size the bytes that were read go into the response; the rest is read again as the client takes it."""
BATCHES_MAX = 1000
"""Batches that are looked at in one step of the event loop: with their acquisition some 3 ms."""


class FoundBatches(NamedTuple):
    """Successive batches of one segment, the position after each, and their bytes if they are few."""

    slice: Slice
    batches: list[LogBatch]
    ends: list[int]
    data: bytes | None

    def holding(self, acquired: Sequence[AcquiredBatch]) -> "Slice | bytes | None":
        """Return the whole batches that contain acquired records; None if there are none."""
        if not acquired:
            return None
        first, last = acquired[0].start, acquired[-1].end
        wanted = [number for number, batch in enumerate(self.batches) if batch.end > first and batch.start < last]
        begin = self.slice.start
        start, stop = (self.ends[wanted[0] - 1] if wanted[0] else begin), self.ends[wanted[-1]]
        if self.data is not None:
            return self.data[start - begin : stop - begin]
        return Slice(self.slice.segment, start, stop, self.slice.truncations)


def find_batches(partition: Partition, wanted: WantedRange, records_max: int) -> FoundBatches | None:
    """Return the wanted batches: about `records_max` records of them, and at most BATCHES_MAX batches.

    None if there are none yet, or if they are being downloaded from the archive. Raises as `Log.slice`, and
    ArchiveUnavailable.
    """
    found, aborted = _read(partition, wanted)
    if found is None:
        return None
    offset, wait = wanted.offset, wanted.wait
    is_aborted = _Aborted(aborted) if wanted.with_aborted else _none_aborted
    batches: list[LogBatch] = []
    ends: list[int] = []
    pieces: list[Bytes] = []
    count, position = 0, found.start
    while position < found.stop and count < records_max and len(batches) < BATCHES_MAX:
        piece_end = found.segment.piece_end(position, found.stop, PIECE_BYTES, wait=wait)
        piece = found.segment.read(position, piece_end, wait=wait)
        pieces.append(piece)
        at = 0
        for header in islice(_headers(piece), BATCHES_MAX - len(batches)):
            start, end = header.base_offset, header.end
            # Share rule 9. `is_aborted` is asked first, and about each batch: it has to see the markers.
            is_passed_over = is_aborted(header) or header.is_control or not header.record_count
            batches.append(LogBatch(start, end, is_passed_over))
            at += header.size
            ends.append(position + at)
            if not is_passed_over:
                count += end - (start if start > offset else offset)
                if count >= records_max:
                    break
        position = piece_end
    size = sum(map(len, pieces))
    return FoundBatches(found, batches, ends, b"".join(pieces) if size <= PIECES_BYTES_MAX else None)


def _read(partition: Partition, wanted: WantedRange) -> tuple[Slice | None, Sequence[AbortedTransaction]]:
    """Return batches, and the aborted transactions among them, if they are wanted."""
    log = partition.log
    try:
        found = log.slice(wanted.offset, wanted.bytes_max, wanted.end, wait=wanted.wait)
    except NotLocal:
        archive = partition.context.archive
        if not isinstance(archive, ArchiveReads):
            raise
        archived, aborted = archive.read(partition, wanted)
        return archived, aborted or ()
    if found is None or not wanted.with_aborted:
        return found, ()
    return found, log.aborted(wanted.offset, wanted.end, wait=wanted.wait)


def _headers(piece: Bytes) -> Iterator[BatchHeader]:
    at = 0
    while at < len(piece):
        header = peek(piece, at)
        yield header
        at += header.size


def _none_aborted(_header: BatchHeader) -> bool:
    return False


class _Aborted:
    """Decides whether batches, called in order, belong to aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = [*reversed(aborted)]
        self._open: set[int] = set()

    def __call__(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset < header.end:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            # The marker ends the transaction: the producer's next one may be committed.
            self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open
