"""Which offset stands for a point in time. Looks into batches: for questions, never on the way of the data.

What a batch's header says of its timestamps is its producer's word. Where that leads to too many records, or a batch
cannot be decoded, the batch's first offset is the answer: a reader who begins there misses nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.storage.batch import BatchHeader
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.index import Interval
from cordwood.storage.log import Log
from cordwood.storage.records import RecordCursor
from cordwood.storage.segment import Segment

LOOKED_AT_MAX = 1 << 20
"""Records, for one question: some seconds beside the loop."""


class Found(NamedTuple):
    """A record by its place and its time (milliseconds)."""

    offset: int
    timestamp: int
    leader_epoch: int


class Batch(NamedTuple):
    """Where one is."""

    segment: Segment
    position: int
    header: BatchHeader


def first_at_or_after(log: Log, timestamp: int, end: int, looked_at_max: int = LOOKED_AT_MAX) -> Found | None:
    """The first record below `end` with at least this timestamp; None where there is none. Waits for the disk."""
    looking = _Looking(log, end, looked_at_max)
    for segment in log.segments:
        segment.learn_time()
        if segment.end_offset <= log.log_start or segment.max_timestamp < timestamp:
            continue
        for batch in _batches_at_or_after(segment, timestamp):
            for found in looking.records(batch):
                if found.timestamp >= timestamp:
                    return found
    return None


def latest_by_time(log: Log, end: int, looked_at_max: int = LOOKED_AT_MAX) -> Found | None:
    """The record below `end` with the largest timestamp, the first of equals (KIP-734). Waits for the disk."""
    looking = _Looking(log, end, looked_at_max)
    best: Found | None = None
    for segment in log.segments:
        segment.learn_time()
    for segment in sorted(log.segments, key=lambda segment: segment.max_timestamp, reverse=True):
        if best is not None and segment.max_timestamp < best.timestamp:
            break
        for interval in sorted(segment.proofs(), key=lambda interval: -interval.max_timestamp):
            if best is not None and interval.max_timestamp < best.timestamp:
                break
            for batch in _batches(segment, interval):
                best = looking.latest(batch, best)
    return best


class _Looking:
    """One question's view of a log: what is readable, as far as it goes."""

    def __init__(self, log: Log, end: int, looked_at_max: int) -> None:
        self._start, self._end, self._left = log.log_start, end, looked_at_max

    def records(self, batch: Batch) -> Iterator[Found]:
        """The readable records of a batch; in place of those that are not looked at, its first with its latest time."""
        segment, position, header = batch
        first = max(header.base_offset, self._start)
        if first >= min(header.end, self._end):
            return
        epoch = header.leader_epoch
        try:
            cursor = RecordCursor(bytes(segment.read(position, position + header.size)), self._start)
            for offset, timestamp in cursor.times():
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

    def latest(self, batch: Batch, best: Found | None) -> Found | None:
        """`best`, or a readable record of the batch that is later: the first of equals."""
        header = batch.header
        if best is not None and (header.max_timestamp, -header.base_offset) < _lateness(best):
            return best
        for found in self.records(batch):
            if best is None or _lateness(found) > _lateness(best):
                best = found
            if found.timestamp >= header.max_timestamp:
                break
        return best


def _batches_at_or_after(segment: Segment, timestamp: int) -> Iterator[Batch]:
    """Each batch that says it has a record of at least `timestamp`."""
    for interval in segment.proofs():
        if interval.max_timestamp >= timestamp:
            for batch in _batches(segment, interval):
                if batch.header.max_timestamp >= timestamp:
                    yield batch


def _batches(segment: Segment, interval: Interval) -> Iterator[Batch]:
    for position, header in segment.headers(interval.position, interval.end):
        yield Batch(segment, position, header)


def _lateness(found: Found) -> tuple[int, int]:
    """Larger for later ones, and of equals for the first."""
    return found.timestamp, -found.offset
