"""Vectorized record decoding: positions of keys, values and headers, with every length checked."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cordwood.columnar.decompression import DecompressedBodies
from cordwood.columnar.record_starts import walk
from cordwood.columnar.varints import Numbers, Octets, Places, varints
from cordwood.storage.batch import LOG_APPEND_TIME
from cordwood.storage.errors import CorruptBatch

HEADER_BYTES_MIN = 2
"""Minimum size of a header: the lengths of its key and its value."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Byte strings in a buffer, by start and length. Null strings have length 0."""

    starts: Places
    lengths: Numbers
    is_null: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all records, concatenated: the first `counts[0]` belong to the first record, and so on."""

    counts: Numbers
    keys: Spans
    values: Spans


@dataclass(frozen=True, slots=True)
class Records:
    """Records with offsets and timestamps, not yet decoded further. All arrays have one item per record.

    `contents` is the position of the key's length, `ends` the position after the record. Timestamps are in ms.
    """

    octets: Octets
    offsets: Numbers
    timestamps: Numbers
    timestamp_types: Numbers
    contents: Places
    ends: Places

    def __len__(self) -> int:
        return len(self.offsets)

    def within(self, start: int, end: int) -> "Records":
        """Return the records with offsets from `start` (inclusive) to `end` (exclusive)."""
        first, ends_at = np.searchsorted(self.offsets, (start, end))
        return self[int(first) : int(ends_at)]

    def __getitem__(self, rows: slice) -> "Records":
        return Records(
            self.octets,
            self.offsets[rows],
            self.timestamps[rows],
            self.timestamp_types[rows],
            self.contents[rows],
            self.ends[rows],
        )

    def key_and_value(self) -> tuple[Spans, Spans, Places]:
        """Return the keys, the values, and the positions of the header counts after them. Raises CorruptBatch."""
        keys, ends_at = _spans(self.octets, self.contents, self.ends)
        values, ends_at = _spans(self.octets, ends_at, self.ends)
        return keys, values, ends_at

    def headers(self, places: Places) -> Headers:
        """Return the headers, whose counts are at `places`. Raises CorruptBatch."""
        counts, ends_at = _numbers(self.octets, places)
        if (counts < 0).any() or (counts > (self.ends - ends_at) // HEADER_BYTES_MIN).any():
            raise CorruptBatch("an invalid number of headers")
        first = np.cumsum(counts) - counts
        keys, values = _empty_spans(int(counts.sum())), _empty_spans(int(counts.sum()))
        ends_at, nth = ends_at.copy(), 0
        rows = np.flatnonzero(counts)
        while len(rows):
            for spans in (keys, values):
                found, ends_at[rows] = _spans(self.octets, ends_at[rows], self.ends[rows])
                _put(spans, first[rows] + nth, found)
            nth += 1
            rows = rows[counts[rows] > nth]
        if keys.is_null.any():
            raise CorruptBatch("a header without a key")
        if (ends_at != self.ends).any():
            raise CorruptBatch("a record that does not end after its last header")
        return Headers(counts, keys, values)


def read_records(bodies: DecompressedBodies) -> Records:
    """Return all records of decompressed batches. Raises CorruptBatch if lengths, offsets or counts do not fit."""
    octets = np.frombuffer(bodies.buffer, dtype=np.uint8)
    batches = bodies.batches
    counts = _array([body.header.record_count for body in batches])

    def of_each(numbers: list[int]) -> Numbers:
        return np.repeat(_array(numbers), counts)

    try:
        heads = walk(bodies, octets)
        ends = np.empty_like(heads)
        ends[:-1] = heads[1:]
        ends[np.cumsum(counts) - 1] = [body.end for body in batches]
        lengths, starts = varints(octets, heads)
        if (starts + lengths != ends).any() or (lengths < 0).any():
            raise CorruptBatch("records with a wrong length")
        time_deltas, places = varints(octets, starts + 1)
        offset_deltas, contents = varints(octets, places)
    except IndexError as error:
        raise CorruptBatch("a record that extends past the end of its batch") from error
    offsets = of_each([body.header.base_offset for body in batches]) + offset_deltas
    last = of_each([body.header.last_offset_delta for body in batches])
    if (offset_deltas < 0).any() or (offset_deltas > last).any() or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptBatch("records whose offsets do not increase")
    is_append_time = of_each([bool(body.header.attributes & LOG_APPEND_TIME) for body in batches])
    created = of_each([body.header.base_timestamp for body in batches]) + time_deltas
    appended = of_each([body.header.max_timestamp for body in batches])
    return Records(octets, offsets, np.where(is_append_time, appended, created), is_append_time, contents, ends)


def _array(numbers: list[int]) -> Numbers:
    return np.array(numbers, dtype=np.int64)


def _spans(octets: Octets, places: Places, ends: Places) -> tuple[Spans, Places]:
    """Return the length-prefixed byte string at each position, and the position after it. Raises CorruptBatch."""
    lengths, starts = _numbers(octets, places)
    is_null = lengths < 0
    lengths = np.where(is_null, 0, lengths)
    if (lengths > ends - starts).any():
        raise CorruptBatch("a field that is longer than its record")
    return Spans(starts, lengths, is_null), starts + lengths


def _numbers(octets: Octets, places: Places) -> tuple[Numbers, Places]:
    """Return `varints`. Raises CorruptBatch also for a position past the end of the buffer."""
    try:
        return varints(octets, places)
    except IndexError as error:
        raise CorruptBatch("a field past the end of its batch") from error


def _empty_spans(count: int) -> Spans:
    return Spans(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_))


def _put(spans: Spans, at: Places, found: Spans) -> None:
    spans.starts[at], spans.lengths[at], spans.is_null[at] = found.starts, found.lengths, found.is_null
