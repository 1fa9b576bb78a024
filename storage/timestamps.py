"""Which offset stands for a point in time. Looks into batches: for questions, never on the way of the data."""

from collections.abc import Iterator
from typing import NamedTuple

from cordwood.storage.batch import BatchHeader
from cordwood.storage.log import Log
from cordwood.storage.records import Record, decode
from cordwood.storage.segment import Segment


class Found(NamedTuple):
    """A record by its place and its time (milliseconds)."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(log: Log, timestamp: int, end: int) -> Found | None:
    """The first record below `end` with at least this timestamp; None where there is none. Waits for the disk."""
    for segment in log.segments:
        segment.learn_time()
        if segment.end_offset <= log.log_start or segment.max_timestamp < timestamp:
            continue
        for position, header in _batches_at_or_after(segment, timestamp):
            for record in _records(segment, position, header.size):
                if record.timestamp >= timestamp and log.log_start <= record.offset < end:
                    return Found(record.offset, record.timestamp, header.leader_epoch)
    return None


def latest_by_time(log: Log, end: int) -> Found | None:
    """The record below `end` with the largest timestamp, the first of equals (KIP-734). Waits for the disk."""
    best: Found | None = None
    for segment in log.segments:
        segment.learn_time()
    for segment in sorted(log.segments, key=lambda segment: segment.max_timestamp, reverse=True):
        if best is not None and segment.max_timestamp < best.timestamp:
            break
        found = _latest_in(log, segment, end)
        if found is not None and (best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset)):
            best = found
    return best


def _batches_at_or_after(segment: Segment, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch with a record of at least `timestamp`."""
    for interval in segment.proofs():
        if interval.max_timestamp >= timestamp:
            for position, header in segment.headers(interval.position, interval.end):
                if header.max_timestamp >= timestamp:
                    yield position, header


def _latest_in(log: Log, segment: Segment, end: int) -> Found | None:
    """The record of one segment with its largest timestamp, among those that are readable."""
    best: Found | None = None
    for position, header in segment.headers(0, segment.size):
        if header.base_offset >= end or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        for record in _records(segment, position, header.size):
            if log.log_start <= record.offset < end and (best is None or record.timestamp > best.timestamp):
                best = Found(record.offset, record.timestamp, header.leader_epoch)
    return best


def _records(segment: Segment, position: int, size: int) -> list[Record]:
    return decode(bytes(segment.read(position, position + size)))
