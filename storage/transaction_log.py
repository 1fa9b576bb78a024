"""Transactions read from a log's batches: recorded as batches arrive, and found again where that record is missing.

A segment has the first offset that was undecided where it begins. Every transaction that a marker in the segment ends
began at or above it, so that a scan from there on finds them all.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cordwood.storage.aborted_index import AbortedIndex, AbortedRow
from cordwood.storage.batch import BatchHeader
from cordwood.storage.boundaries import headers_from
from cordwood.storage.control import EndTransactionMarker, decode_marker
from cordwood.storage.errors import DamagedLog
from cordwood.storage.producers import Producers
from cordwood.storage.segment import Segment
from cordwood.storage.transactions import NO_TRANSACTION

if TYPE_CHECKING:
    from cordwood.storage.log import Log


def record(
    producers: Producers,
    aborted: AbortedIndex,
    header: BatchHeader,
    base: int,
    end: int,
    now_ms: int,
    marker: EndTransactionMarker | None,
) -> None:
    """Record a transactional batch, or a control batch with its marker, that is in the log from `base` to `end`."""
    row = record_in(producers, header, base, end, now_ms, marker)
    if row is not None:
        aborted.append(row)


def record_in(
    producers: Producers, header: BatchHeader, base: int, end: int, now_ms: int, marker: EndTransactionMarker | None
) -> AbortedRow | None:
    """Record a transactional batch in the producers' states. Return the transaction that it aborts, if any."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.appended_in_transaction(header, base, end, now_ms)
    elif marker is not None:
        first_offset = producers.ended(header, base, marker, now_ms)
        if first_offset != NO_TRANSACTION and not marker.is_commit:
            return AbortedRow(header.producer_id, first_offset, base, producers.transactions.first_undecided(end))
    return None


def record_again(producers: Producers, segment: Segment, position: int, header: BatchHeader) -> AbortedRow | None:
    """Record a batch that the log has at `position`, if it is transactional, as `record_in`. Blocks on the disk."""
    if not header.is_transactional:
        return None
    marker = marker_of(segment, position, header)
    return record_in(producers, header, header.base_offset, header.end, header.max_timestamp, marker)


def replay(producers: Producers, segment: Segment, position: int, header: BatchHeader) -> AbortedRow | None:
    """Record any batch that the log has at `position`, as `record_in`. Blocks on the disk.

    The time of the append is not in the log: the batch's timestamp stands for it.
    """
    if not header.is_transactional and header.producer_id >= 0:
        producers.appended(header, header.base_offset, header.end, header.max_timestamp)
    return record_again(producers, segment, position, header)


def marker_of(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker of the batch at `position`; None if it is not a control batch. Blocks on the disk."""
    if not header.is_control:
        return None
    return decode_marker(segment.file.pread(header.size, position))


def must_read_again(producers: Producers, end: int) -> bool:
    """Return whether a truncation to `end` reads batches: it may remove a marker below the high watermark."""
    return end < min(producers.transactions.end, producers.transactions.complete_from)


def producers_again(log: "Log", segment: Segment, end: int, again: Producers | None = None) -> Producers | None:
    """Return the states of transactional producers at `end`, in `segment`, before a truncation to `end`.

    None if those in memory suffice; `again` if they have been read. Blocks on the disk. Raises DamagedLog: without the
    batches before `end` it is unknown which transactions are ongoing there.
    """
    if again is not None or not must_read_again(log.producers, end):
        return again
    producers = Producers()
    for _ in _rows_again(log.segments, segment, end, producers):
        pass
    return producers


def aborted_again(segments: Sequence[Segment], segment: Segment, end: int) -> Iterator[AbortedRow]:
    """Yield the aborted transactions with markers in `segment` below `end`, from the batches. Blocks on the disk.

    Raises DamagedLog.
    """
    for row in _rows_again(segments, segment, min(end, segment.end_offset), Producers()):
        if row.marker_offset >= segment.base_offset:
            yield row


def restore_aborted(log: "Log", segment: Segment, end: int) -> None:
    """Find the aborted transactions below `end` in the batches. Those that damage hides stay missing."""
    log.transactions_read_again(segment)
    found: list[AbortedRow] = []
    try:
        found.extend(aborted_again(log.segments, segment, end))
    except DamagedLog:
        segment.aborted.restored(found, is_all=False)
    else:
        segment.aborted.restored(found, is_all=True)


def _rows_again(segments: Sequence[Segment], segment: Segment, end: int, producers: Producers) -> Iterator[AbortedRow]:
    """Record the batches below `end` from where no transaction of interest began before, and yield what they abort."""
    for place, position, header in headers_from(segments, segment.aborted.undecided, end):
        if (row := record_again(producers, place, position, header)) is not None:
            yield row
