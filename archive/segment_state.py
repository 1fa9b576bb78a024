"""State object of an archived segment: what a broker with an empty disk, or a reader without brokers, needs beside it.

Layout: magic, base offset, end offset, first undecided offset at the base, largest timestamp (i64 each), lengths of
four parts (u32 each), the parts, CRC-32C of everything before. The parts are the rows of the sparse index, the leader
epochs of the log up to the end, the producers as of the end, and the rows of the aborted index.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage import aborted_index, index
from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.disk import Bytes
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.index import Interval
from cordwood.storage.producers import Producers
from cordwood.storage.segment import Segment, headers_in
from cordwood.storage.transaction_log import replay

_MAGIC = b"CWSTATE1"
_HEAD = struct.Struct(">8sqqqqIIII")
_CRC = struct.Struct(">I")


class DamagedState(Exception):
    """Bytes that are no state object, or a damaged one."""


class SegmentState(NamedTuple):
    """State of a segment. The parts are encoded as on a broker's disk: decode what is needed."""

    base_offset: int
    end_offset: int
    undecided: int
    """First offset of the oldest transaction that was undecided at the base offset; that offset if there was none."""
    max_timestamp: int
    """In milliseconds; -1 if no record has one."""
    index_rows: bytes
    """Rows of `storage/index.py`: they cover the whole segment."""
    epochs_encoded: bytes
    """`LeaderEpochs.encode()` of the log, from its beginning up to `end_offset`."""
    producers_encoded: bytes
    """`ProducersSnapshot.encode()` as of `end_offset`."""
    aborted_rows: bytes
    """Rows of `storage/aborted_index.py`: transactions whose markers are in the segment."""

    @property
    def intervals(self) -> list[Interval]:
        """The rows of the index: offset relative to the base, position, size, CRC-32C, largest timestamp."""
        return index.rows_of(self.index_rows)

    @property
    def epochs(self) -> LeaderEpochs:
        return LeaderEpochs.decode(self.epochs_encoded)

    @property
    def producers(self) -> Producers:
        return Producers.decode(self.producers_encoded)

    @property
    def aborted(self) -> list[AbortedRow]:
        """Aborted transactions, in the order of their markers."""
        return aborted_index.rows_of(self.aborted_rows)


def encode(state: SegmentState) -> bytes:
    """Return the content of a state object."""
    parts = state[4:]
    content = _HEAD.pack(_MAGIC, *state[:4], *map(len, parts)) + b"".join(parts)
    return content + _CRC.pack(crc32c(content))


def decode(content: bytes) -> SegmentState:
    """Return the state. Raises DamagedState."""
    body = memoryview(content)[: -_CRC.size]
    if len(body) < _HEAD.size or _CRC.unpack(content[-_CRC.size :])[0] != crc32c(body):
        raise DamagedState("the state object does not match its checksum")
    magic, base, end, undecided, max_timestamp, *sizes = _HEAD.unpack_from(body)
    if magic != _MAGIC or len(body) != _HEAD.size + sum(sizes):
        raise DamagedState(f"a state object begins with {magic!r}, which this version does not know")
    parts, position = [], _HEAD.size
    for size in sizes:
        parts.append(bytes(body[position : position + size]))
        position += size
    return SegmentState(base, end, undecided, max_timestamp, *parts)


def state_of(
    segment: Segment,
    epochs: LeaderEpochs,
    producers_before: bytes | None,
    start_offset: int = 0,
    pieces: Iterable[tuple[int, Bytes]] | None = None,
) -> SegmentState:
    """Return the state of a sealed segment. Blocks: reads the segment whole.

    `epochs` are those of the log. `producers_before` is `producers_encoded` of the archived segment before, which ends
    at `start_offset`; None if there is none: producers without a batch from here on are unknown then. `pieces` are
    those of `Segment.pieces`, from a caller that needs the batches, too: all are taken. Raises DamagedLog.
    """
    until = LeaderEpochs.decode(epochs.encode())
    until.truncate_end(segment.end_offset)
    rows, aborted = segment.proofs(), segment.aborted
    producers = producers_after(segment, producers_before, start_offset, pieces)
    return SegmentState(
        segment.base_offset,
        segment.end_offset,
        aborted.undecided,
        segment.max_timestamp,
        rows.encode(),
        until.encode(),
        producers,
        aborted.encode(),
    )


def producers_after(
    segment: Segment,
    before: bytes | None,
    start_offset: int = 0,
    pieces: Iterable[tuple[int, Bytes]] | None = None,
) -> bytes:
    """Return the producers as of the segment's end, encoded, from those as of its base, or of a later `start_offset`.

    Blocks. Raises DamagedLog.
    """
    producers = Producers() if before is None else Producers.decode(before)
    for position, header in headers_in(segment.pieces(0, segment.size) if pieces is None else pieces):
        if header.end > start_offset:
            replay(producers, segment, position, header)
    return _encoded(producers, segment.end_offset)


def rebuilt(segment: Segment, before: SegmentState) -> SegmentState:
    """Return the state of a segment from its batches and the state of the segment before. Blocks. Raises DamagedLog."""
    producers, epochs = before.producers, before.epochs
    undecided = producers.transactions.first_undecided(segment.base_offset)
    aborted = list[AbortedRow]()
    for position, header in segment.headers(0, segment.size):
        epochs.assign(header.leader_epoch, header.base_offset)
        row = replay(producers, segment, position, header)
        if row is not None:
            aborted.append(row)
    rows = segment.proofs()
    encoded = _encoded(producers, segment.end_offset)
    return SegmentState(
        segment.base_offset,
        segment.end_offset,
        undecided,
        rows.max_timestamp(),
        rows.encode(),
        epochs.encode(),
        encoded,
        aborted_index.encode(aborted),
    )


def _encoded(producers: Producers, end: int) -> bytes:
    """Return the producers as of `end`, encoded: without what markers have replaced, for no truncation goes back there.

    Otherwise each state would have an entry for every marker of all segments before.
    """
    producers.transactions.committed_to(end)
    return producers.snapshot(end).encode()
