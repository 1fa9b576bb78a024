"""Batches of a partition for a member of a share group: their offsets and places in the log, and their bytes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cordwood.cluster.share.share_partition import LogBatch
from cordwood.cluster.share.states import AcquiredBatch
from cordwood.storage.batch import BatchHeader, peek
from cordwood.storage.disk import Bytes
from cordwood.storage.log import Log
from cordwood.storage.slices import Slice

PIECE_BYTES = 64 << 10
PIECES_BYTES_MAX = 64 << 10
"""Up to this size the bytes that were read go into the response; the rest is read again as the client takes it."""


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


def find_batches(
    log: Log, offset: int, end: int, bytes_max: int, records_max: int, *, is_read_committed: bool, wait: bool
) -> FoundBatches | None:
    """Return batches from the one with `offset` on, up to `end`: about `records_max` records of them.

    None if there are none yet. Raises as `Log.slice`.
    """
    found = log.slice(offset, bytes_max, end, wait=wait)
    if found is None:
        return None
    is_aborted = _Aborted(log, offset, end, wait=wait) if is_read_committed else _none_aborted
    batches: list[LogBatch] = []
    ends: list[int] = []
    pieces: list[Bytes] = []
    count, position = 0, found.start
    while position < found.stop and count < records_max:
        piece_end = found.segment.piece_end(position, found.stop, PIECE_BYTES, wait=wait)
        piece = found.segment.read(position, piece_end, wait=wait)
        pieces.append(piece)
        for at, header in _headers(piece):
            # Asked first, and about each batch: it has to see the markers.
            is_passed_over = is_aborted(header) or header.is_control or not header.record_count
            batches.append(LogBatch(header.base_offset, header.end, is_passed_over))
            ends.append(position + at + header.size)
            if not is_passed_over:
                count += header.end - max(header.base_offset, offset)
            if count >= records_max:
                break
        position = piece_end
    size = sum(map(len, pieces))
    return FoundBatches(found, batches, ends, b"".join(pieces) if size <= PIECES_BYTES_MAX else None)


def _headers(piece: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    at = 0
    while at < len(piece):
        header = peek(piece, at)
        yield at, header
        at += header.size


def _none_aborted(_header: BatchHeader) -> bool:
    return False


class _Aborted:
    """Decides whether batches, called in order, belong to aborted transactions."""

    def __init__(self, log: Log, offset: int, end: int, *, wait: bool) -> None:
        self._coming = log.aborted(offset, end, wait=wait)[::-1]
        self._open: set[int] = set()

    def __call__(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset < header.end:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            # The marker ends the transaction: the producer's next one may be committed.
            self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open
