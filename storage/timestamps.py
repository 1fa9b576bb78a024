"""Offset lookup by timestamp, as ListOffsets needs it. Decodes batches: for lookups only, never on the data path.

The timestamps in a batch's header are the producer's claim. If they lead to too many records, or if a batch cannot be
decoded, the batch's first offset is the result: a reader that begins there misses nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.index import Interval
from cordwood.storage.log import Log
from cordwood.storage.records import RecordCursor
from cordwood.storage.segment import Segment
from cordwood.storage.steps import Steps

LOOKED_AT_MAX = 1 << 20
"""Records examined by one lookup: some seconds beside the event loop."""
RECORDS_PER_STEP = 1 << 14
"""Some 30 ms, and at most as much again to decompress a large batch anew."""


class Found(NamedTuple):
    """A record's offset, timestamp (milliseconds) and leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int


class LocatedBatch(NamedTuple):
    """A batch and its place."""

    segment: Segment
    position: int
    header: BatchHeader


def first_at_or_after(log: Log, timestamp: int, end: int, looked_at_max: int = LOOKED_AT_MAX) -> Steps[Found | None]:
    """Return the first record below `end` with at least this timestamp; None if there is none. Blocks on the disk."""
    return first_in(log.segments, timestamp, log.log_start, end, looked_at_max)


def first_in(
    segments: Iterable[Segment], timestamp: int, start: int, end: int, looked_at_max: int = LOOKED_AT_MAX
) -> Steps[Found | None]:
    """Return as `first_at_or_after`, of the records of these segments from `start` on."""
    looking = _Looking(start, end, looked_at_max)
    for segment in segments:
        segment.load_max_timestamp()
        if segment.end_offset <= start or segment.max_timestamp < timestamp:
            continue
        for batch in _batches_at_or_after(segment, timestamp):
            for found in looking.records(batch):
                if found is None:
                    yield
                elif found.timestamp >= timestamp:
                    return found
    return None


def latest_by_time(log: Log, end: int, looked_at_max: int = LOOKED_AT_MAX) -> Steps[Found | None]:
    """Return the record below `end` with the largest timestamp, the first of equals (KIP-734). Blocks on the disk."""
    return latest_in(log.segments, log.log_start, end, looked_at_max)


def latest_in(
    segments: Sequence[Segment], start: int, end: int, looked_at_max: int = LOOKED_AT_MAX
) -> Steps[Found | None]:
    """Return as `latest_by_time`, of the records of these segments from `start` on."""
    looking = _Looking(start, end, looked_at_max)
    best: Found | None = None
    for segment in segments:
        segment.load_max_timestamp()
    for segment in sorted(segments, key=lambda segment: segment.max_timestamp, reverse=True):
        if best is not None and segment.max_timestamp < best.timestamp:
            break
        for interval in sorted(segment.proofs(), key=lambda interval: -interval.max_timestamp):
            if best is not None and interval.max_timestamp < best.timestamp:
                break
            for batch in _batches(segment, interval):
                best = yield from looking.latest(batch, best)
    return best


class _Looking:
    """One lookup's view of a log: the readable offsets, and how many more records may be examined."""

    def __init__(self, start: int, end: int, looked_at_max: int) -> None:
        self._start, self._end, self._left = start, end, looked_at_max

    def records(self, batch: LocatedBatch) -> Iterator[Found | None]:
        """Yield a batch's readable records; for those not examined, its first offset with its largest timestamp.

        None after each step: at that time, the batch's bytes and at most KEPT_BYTES_MAX are in memory.
        """
        segment, position, header = batch
        first = max(header.base_offset, self._start)
        if first >= min(header.end, self._end):
            return
        epoch = header.leader_epoch
        try:
            cursor = RecordCursor(bytes(segment.read(position, position + header.size)))
            for row in _times_in_steps(cursor):
                if row is None:
                    yield None
                    continue
                offset, timestamp = row
                if offset < self._start:
                    continue
                if offset >= self._end:
                    return
                self._left -= 1
                if self._left < 0:
                    break
                yield Found(offset, timestamp, epoch)
            else:
                return
        except CorruptBatch:
            pass
        yield Found(first, header.max_timestamp, epoch)

    def latest(self, batch: LocatedBatch, best: Found | None) -> Steps[Found | None]:
        """Return `best`, or a readable record of the batch that is later: the first of equals."""
        header = batch.header
        if best is not None and (header.max_timestamp, -header.base_offset) < _lateness(best):
            return best
        for found in self.records(batch):
            if found is None:
                yield
                continue
            if best is None or _lateness(found) > _lateness(best):
                best = found
            if found.timestamp >= header.max_timestamp:
                break
        return best


def _times_in_steps(cursor: RecordCursor) -> Iterator[tuple[int, int] | None]:
    """Yield offset and timestamp of each record, and None after each step."""
    is_over = False
    while not is_over:
        is_over = True
        for row in islice(cursor.times(), RECORDS_PER_STEP):
            is_over = False
            yield row
        cursor.rest()
        yield None


def _batches_at_or_after(segment: Segment, timestamp: int) -> Iterator[LocatedBatch]:
    """Yield each batch whose header claims a record of at least `timestamp`."""
    for interval in segment.proofs():
        if interval.max_timestamp >= timestamp:
            for batch in _batches(segment, interval):
                if batch.header.max_timestamp >= timestamp:
                    yield batch


def _batches(segment: Segment, interval: Interval) -> Iterator[LocatedBatch]:
    for position, header in segment.headers(interval.position, interval.end):
        yield LocatedBatch(segment, position, header)


def _lateness(found: Found) -> tuple[int, int]:
    """Return a sort key that is larger for later records and, among equals, for the first."""
    return found.timestamp, -found.offset
