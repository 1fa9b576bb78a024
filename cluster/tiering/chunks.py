"""Chunks of an archived segment: runs of its index intervals, each downloaded, verified and cached as one.

A chunk on disk is a file of whole batches, with its part of the index after them. To readers it is a sealed segment, so
that every read of it is verified like a read of a log.
"""

from bisect import bisect_left, bisect_right
from contextlib import closing
from typing import NamedTuple, Self

from crc32c import crc32c

from cordwood.archive.manifest import ArchivedSegment
from cordwood.archive.segment_state import DamagedState, SegmentState, decode
from cordwood.storage.aborted_index import AbortedRow, AbortedTransaction
from cordwood.storage.disk import Bytes, Disk
from cordwood.storage.errors import DamagedLog
from cordwood.storage.index import Index, Interval, encode_rows
from cordwood.storage.manifest import SealedSegment
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile, segment_path

CHUNK_BYTES = 4 << 20
"""A larger chunk delays its first reader, and a smaller one costs a request to the store more often."""


class DamagedDownload(Exception):
    """An object of the archive that is not what its manifest has."""


class Chunk(NamedTuple):
    """A chunk's place in its segment: rows of the index, bytes, and offsets."""

    number: int
    first_row: int
    end_row: int
    position: int
    size: int
    base_offset: int
    end_offset: int


class SegmentContents:
    """The state of an archived segment for its readers: index, chunks, and aborted transactions."""

    __slots__ = ("_latest", "aborted", "base_offset", "chunks", "index", "undecided")

    def __init__(self, segment: ArchivedSegment, state: SegmentState, chunk_bytes: int) -> None:
        self.index = Index.decode(state.index_rows)
        if self.index.end != segment.size:
            raise DamagedDownload(f"the index covers {self.index.end} of {segment.size} bytes")
        self.base_offset = segment.base_offset
        self.chunks = tuple(_chunks_of(self.index, segment, chunk_bytes))
        self.undecided, self.aborted = state.undecided, state.aborted
        self._latest: dict[int, int] = {}

    @property
    def size(self) -> int:
        """About the bytes of memory that this takes."""
        return self.index.size + 200 * (len(self.chunks) + len(self.aborted))

    def chunk_of(self, offset: int) -> Chunk:
        """Return the chunk with the batch that contains `offset`."""
        return self.chunks[max(bisect_right(self.chunks, offset, key=lambda chunk: chunk.base_offset) - 1, 0)]

    def latest_of(self, chunk: Chunk) -> int:
        """Return the largest timestamp in a chunk."""
        known = self._latest.get(chunk.number)
        if known is None:
            known = self._latest[chunk.number] = self.index.rows(chunk.first_row, chunk.end_row).max_timestamp()
        return known

    def aborted_in(self, start: int, end: int) -> set[AbortedTransaction]:
        """Return the transactions with records from `start` up to `end` whose markers are in this segment."""
        found = set()
        for place in range(bisect_left(self.aborted, start, key=_marker_offset), len(self.aborted)):
            row = self.aborted[place]
            if row.first_offset < end:
                found.add(AbortedTransaction(row.producer_id, row.first_offset))
            if row.last_stable_offset >= end:
                break
        return found


def contents_of(segment: ArchivedSegment, state_object: bytes, chunk_bytes: int) -> SegmentContents:
    """Return the contents of a state object for readers, in chunks of about this size. Raises DamagedDownload."""
    return SegmentContents(segment, state_of(segment, state_object), chunk_bytes)


def state_of(segment: ArchivedSegment, state_object: bytes) -> SegmentState:
    """Return the state that the manifest promises. Raises DamagedDownload."""
    if (len(state_object), crc32c(state_object)) != (segment.state_size, segment.state_crc):
        raise DamagedDownload("the state of a segment does not match the manifest")
    try:
        return decode(state_object)
    except DamagedState as damaged:
        raise DamagedDownload(str(damaged)) from None


class CachedChunk(Segment):
    """A chunk on disk.

    The segment holds its own file and index, so that its reader can continue after the file is removed.
    """

    __slots__ = ()

    @classmethod
    def open(cls, disk: Disk, directory: str, row: SealedSegment, index: Index) -> Self:
        """Open the file of a chunk, with its part of the index. Raises OSError."""
        chunk = cls(disk, directory, _file_of(row), 0, OpenSegments())
        chunk.end_offset, chunk.size, chunk.is_sealed = row.end_offset, row.size, True
        chunk._max_timestamp = row.max_timestamp
        chunk._file, chunk._index = disk.open(chunk.path), index
        return chunk


class WrittenChunk(NamedTuple):
    """A chunk's file: in which directory, its listing, and length and CRC-32C of the index at its end."""

    disk: Disk
    directory: str
    row: SealedSegment
    index_size: int
    index_crc: int

    @property
    def size(self) -> int:
        return self.row.size + self.index_size

    def open(self) -> CachedChunk:
        """Open the chunk.

        Blocks on the disk. Raises OSError, and DamagedLog if the index differs from what was written.
        """
        with closing(self.disk.open(path := segment_path(self.directory, *_file_of(self.row)))) as file:
            rows = file.pread(self.index_size, self.row.size)
        if crc32c(rows) != self.index_crc:
            raise DamagedLog(path, self.row.size, "the index differs from what was written")
        return CachedChunk.open(self.disk, self.directory, self.row, Index.decode(rows))


def _file_of(row: SealedSegment) -> SegmentFile:
    """Return the name of a chunk: that of a compacted segment, since what the index proves may have gaps."""
    return SegmentFile(row.base_offset, 1)


def index_of(contents: SegmentContents, chunk: Chunk, batches: Bytes) -> Index:
    """Return the index of a downloaded chunk. Raises DamagedDownload if a batch differs from the archived one."""
    intervals, view = [], memoryview(batches)
    if len(batches) != chunk.size:
        raise DamagedDownload(f"{len(batches)} of {chunk.size} bytes of a chunk")
    base = chunk.base_offset - contents.base_offset
    for offset, position, size, crc, latest in contents.index.rows(chunk.first_row, chunk.end_row):
        start = position - chunk.position
        if crc32c(view[start : start + size]) != crc:
            raise DamagedDownload(f"the batches at byte {position} differ from the archived ones")
        intervals.append(Interval(offset - base, start, size, crc, latest))
    return Index.decode(encode_rows(intervals))


def write(disk: Disk, directory: str, chunk: Chunk, batches: Bytes, index: Index) -> tuple[WrittenChunk, CachedChunk]:
    """Write and open the file of a verified chunk. Nothing is synced. Blocks on the disk. Raises OSError."""
    row = SealedSegment(chunk.base_offset, chunk.end_offset, chunk.size, index.max_timestamp(), chunk.base_offset)
    rows = index.encode()
    disk.make_directories(directory)
    path = segment_path(directory, *_file_of(row))
    with closing(disk.open(path, create=True)) as file:
        file.truncate(0)
        try:
            file.pwrite([batches, rows], 0)
        except OSError:
            disk.remove_tree(directory)
            raise
    return WrittenChunk(disk, directory, row, len(rows), crc32c(rows)), CachedChunk.open(disk, directory, row, index)


def _chunks_of(index: Index, segment: ArchivedSegment, chunk_bytes: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    bases, row = [], 0
    while row < len(index):
        first = index[row]
        end_row = max(min(index.row_of_position(first.position + chunk_bytes), len(index)), row + 1)
        size = index.end_of_row(end_row - 1) - first.position
        # A compacted segment may have a gap before its first batch.
        base = segment.base_offset + (first.offset if row else 0)
        chunks.append(Chunk(len(chunks), row, end_row, first.position, size, base, segment.end_offset))
        bases.append(base)
        row = end_row
    ends = [*bases[1:], segment.end_offset]
    return [chunk._replace(end_offset=end) for chunk, end in zip(chunks, ends, strict=True)]


def _marker_offset(row: AbortedRow) -> int:
    return row.marker_offset
