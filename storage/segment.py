"""Log segment: a file of batches from its base offset on, with the sparse index that locates and verifies them.

The file is preallocated and filled from the front; after the last batch it holds zeros until it is sealed. Every read
uses the index: the intervals that it touches are read whole and compared with their checksums, so that corrupted bytes
raise DamagedLog and are never served.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress

from crc32c import crc32c

from cordwood.storage.aborted_index import AbortedIndex
from cordwood.storage.batch import HEADER_BYTES, BatchHeader, peek
from cordwood.storage.disk import Bytes, Disk, File, read_around
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, NotInMemory, read_failed
from cordwood.storage.index import DamagedIntervals, Index, Interval, empty
from cordwood.storage.index import read as read_index
from cordwood.storage.manifest import UNKNOWN_TIMESTAMP, SealedSegment
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.recovery import SCAN_BYTES, scan_all
from cordwood.storage.segment_files import SegmentFile, segment_path

ALLOCATE_AT_LEAST = 64 << 10
ALLOCATE_AT_MOST = 64 << 20


class Segment:
    """Batches from `base_offset` to `end_offset`, in the first `size` bytes of a file."""

    __slots__ = (
        "_allocated", "_disk", "_file", "_index", "_index_damage", "_interval_bytes", "_loaded_timestamp",
        "_max_timestamp", "_open", "_opened", "aborted", "base_offset", "damaged", "decoded_to", "end_offset",
        "epochs", "first_timestamp", "generation", "is_lost", "is_sealed", "path", "size", "truncations",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: str, file: SegmentFile, interval: int, opened: OpenSegments) -> None:
        self._disk, self._opened = disk, opened
        self.path = segment_path(directory, *file)
        self.base_offset, self.generation = self.end_offset, _ = file
        self.size, self.first_timestamp, self.is_sealed = 0, -1, False
        self.is_lost = False
        """Whether its file was missing when the log was opened: the segment only reserves its offsets."""
        self.truncations = 0
        """Count of truncations and of a removal: with it a reader notices that its bytes are gone (`slices.py`)."""
        self.decoded_to = 0
        """Byte up to which the scrubber has tried to decompress the batches."""
        self.epochs: LeaderEpochs | None = None
        """Those of its log, which vouch for its batches where the index has to be rebuilt; None if unknown."""
        self._interval_bytes = interval
        self._file: File | None = None
        self._index: Index | None = None
        self._index_damage: DamagedLog | None = None
        self._open = Interval(0, 0, 0, 0, -1)
        self.damaged = DamagedIntervals()
        self.aborted = AbortedIndex(disk, self.path, file.base_offset, opened)
        self._max_timestamp: int | None = -1
        """Of all closed intervals. None for a segment sealed before there was a manifest, until it is truncated."""
        self._loaded_timestamp: int | None = None
        """Used while `_max_timestamp` is None.

        Only threads set it, so that they never overwrite a value of the event loop.
        """
        self._allocated = 0

    @classmethod
    def create(
        cls, disk: Disk, directory: str, file: SegmentFile, interval_bytes: int, opened: OpenSegments
    ) -> "Segment":
        """Create a new, empty segment. Its directory entry is not yet synced."""
        segment = cls(disk, directory, file, interval_bytes, opened)
        segment._file = disk.open(segment.path, create=True)
        segment._file.truncate(0)
        segment._index = Index()
        opened.opened_active(segment)
        return segment

    @classmethod
    def sealed(
        cls, disk: Disk, directory: str, file: SegmentFile, end_offset: int, interval_bytes: int, opened: OpenSegments
    ) -> "Segment":
        """Return a segment that was complete at the last checkpoint: nothing of it is read until needed."""
        segment = cls(disk, directory, file, interval_bytes, opened)
        segment.end_offset, segment.is_sealed, segment._max_timestamp = end_offset, True, None
        segment.size = segment.file.size()
        segment.release()
        return segment

    @classmethod
    def listed(
        cls, disk: Disk, directory: str, row: SealedSegment, interval_bytes: int, opened: OpenSegments
    ) -> "Segment":
        """Return a segment as the manifest lists it, whether its file exists or not."""
        segment = cls(disk, directory, SegmentFile(row.base_offset, row.generation), interval_bytes, opened)
        segment.end_offset, segment.size, segment.is_sealed = row.end_offset, row.size, True
        segment._max_timestamp = None if row.max_timestamp == UNKNOWN_TIMESTAMP else row.max_timestamp
        segment.aborted.listed(row.undecided, row.aborted)
        return segment

    def listing(self) -> SealedSegment:
        """Return this segment's row of the manifest."""
        timestamp = self.max_timestamp if self.is_timed else UNKNOWN_TIMESTAMP
        row = self.size, timestamp, self.aborted.undecided, self.aborted.listed_count, self.generation
        return SealedSegment(self.base_offset, self.end_offset, *row)

    @property
    def file(self) -> File:
        """The file, opened on first use. Raises OutOfResources, DiskFailed, and DamagedLog if the file is missing."""
        return self._file or self._opened.file_of(self) or self._open_file()

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(".log") + ".index"

    @property
    def index(self) -> Index:
        """The index, loaded on first use, and rebuilt from the segment if it is missing or wrong."""
        index = self._loaded()
        return self._load_index() if index is None else index

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of all batches; -1 for an empty segment, and before `load_max_timestamp` where needed."""
        # Read the open interval first: the event loop may close it while a thread is here.
        open_timestamp = self._open.max_timestamp
        closed = self._loaded_timestamp if self._max_timestamp is None else self._max_timestamp
        return max(-1 if closed is None else closed, open_timestamp)

    @property
    def is_timed(self) -> bool:
        """Whether the largest timestamp is known; False only for a segment sealed before there was a manifest."""
        return self._max_timestamp is not None or self._loaded_timestamp is not None

    def load_max_timestamp(self) -> None:
        """Load the largest timestamp from the index. Blocks on the disk. Raises DamagedLog."""
        if not self.is_timed:
            self._loaded_timestamp = self.index.max_timestamp()

    def append(self, pieces: Sequence[Bytes], batches: Sequence[tuple[int, int, int]], end_offset: int) -> None:
        """Append batches to the page cache; a sync of the file makes them durable.

        `pieces` are their bytes in order; `batches` has the offset, size and largest timestamp of each. Raises OSError,
        or as `file`: the segment is unchanged.
        """
        is_single = len(batches) == 1
        self._reserve(batches[0][1] if is_single else sum([size for _, size, _ in batches]))
        try:
            self.file.pwrite(pieces, self.size)
        except OSError:
            # Remove the partial write: its end must not stay after a shorter batch that is written in its place.
            self.file.truncate(self.size)
            self._allocated = self.size
            raise
        if is_single:
            offset, size, timestamp = batches[0]
            self.note(offset, size, timestamp, pieces)
        else:
            self._note_all(batches, memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces)))
        self.end_offset = end_offset

    def adopt(self, contents: Sequence[Bytes], intervals: Sequence[Interval]) -> None:
        """Append intervals that come from other segments. Blocks on the disk. Raises OSError."""
        self.close_interval()
        content = b"".join(contents)
        self._reserve(len(content))
        self.file.pwrite([content], self.size)
        self.file.write_back(self.size, len(content))
        for interval in intervals:
            self._open = interval._replace(position=self.size)
            self.size += interval.size
            self.close_interval()

    def note(self, offset: int, size: int, max_timestamp: int, pieces: Sequence[Bytes]) -> None:
        """Add the batch at position `size` to the open interval or, if that is full, to a new one."""
        if self._open.size and self._open.size + size > self._interval_bytes:
            self.close_interval()
        if not self._open.size:
            if self.first_timestamp < 0:
                self.first_timestamp = max_timestamp
            self._open = Interval(offset - self.base_offset, self.size, 0, 0, -1)
        crc = self._open.crc
        for piece in pieces:
            crc = crc32c(piece, crc)
        first, position, so_far, _, latest = self._open
        self._open = Interval(first, position, so_far + size, crc, latest if latest > max_timestamp else max_timestamp)
        self.size += size

    def _note_all(self, batches: Sequence[tuple[int, int, int]], data: memoryview) -> None:
        """Add several batches, as `note` does, with one computation of the checksum for those of an interval."""
        begin = at = 0
        first, position, so_far, crc, latest = self._open
        for offset, size, timestamp in batches:
            if so_far and so_far + size > self._interval_bytes:
                self._extend(Interval(first, position, so_far, crc32c(data[begin:at], crc), latest))
                self.close_interval()
                begin, so_far = at, 0
            if not so_far:
                if self.first_timestamp < 0:
                    self.first_timestamp = timestamp
                first, position, crc, latest = offset - self.base_offset, self.size, 0, -1
            so_far += size
            at += size
            if timestamp > latest:
                latest = timestamp
        self._extend(Interval(first, position, so_far, crc32c(data[begin:at], crc), latest))

    def _extend(self, interval: Interval) -> None:
        """Replace the open interval by one that has more batches."""
        self._open, self.size = interval, interval.end

    def note_damage(self, size: int) -> None:
        """Add `size` bytes that are not batches: an interval whose checksum is always wrong, so never served."""
        self.close_interval()
        crc = crc32c(read_around(self.file, size, self.size)) ^ 0xFFFFFFFF
        self.index.append(Interval(self.end_offset - self.base_offset, self.size, size, crc, -1))
        self.size += size

    def close_interval(self) -> None:
        """Close the open interval, so that the index covers everything written so far."""
        if self._open.size:
            self.index.append(self._open)
            if self._max_timestamp is not None:
                self._max_timestamp = max(self._max_timestamp, self._open.max_timestamp)
            # Last, after the timestamp: a thread may be reading.
            self._open = Interval(0, 0, 0, 0, -1)

    def read(self, start: int, stop: int, *, wait: bool = True) -> Bytes:
        """Return the verified bytes from `start` to `stop`, which must be batch boundaries.

        Raises DamagedLog if they differ from what was written or cannot be read; NotInMemory if the disk would have to
        be read and `wait` is off; OutOfResources; DiskFailed.
        """
        assert 0 <= start <= stop <= self.size, "a read within the segment"
        if start == stop:
            return b""
        index = self._rows(wait)
        row = index.row_of_position(start)
        intervals = [self._interval(index, row)]
        begin = intervals[0].position
        while intervals[-1].end < stop:
            row += 1
            intervals.append(self._interval(index, row))
        try:
            data = memoryview(self._pread(begin, intervals[-1].end - begin, wait))
        except DamagedLog:
            # Read the intervals one by one, to find the damaged one: later reads may end before it.
            data = memoryview(b"".join([self._read_interval(interval, wait) for interval in intervals]))
        for interval in intervals:
            self._verify(interval, data[interval.position - begin : interval.end - begin])
        return data[start - begin : stop - begin]

    def header_at(self, position: int, *, wait: bool = True) -> BatchHeader:
        """Return the unverified header of the batch at `position`. Raises as `read`."""
        return peek(self._pread(position, HEADER_BYTES, wait))

    def piece_end(self, start: int, stop: int, size: int, *, wait: bool = True) -> int:
        """Return the end of a piece of about `size` bytes of a longer read: an interval boundary if possible.

        Raises as `read`.
        """
        assert size >= 0, "a piece has a size"
        if stop - start <= size:
            return stop
        index = self._rows(wait)
        interval = self._interval(index, index.row_of_position(start + size))
        return min(interval.position if interval.position > start else interval.end, stop)

    def locate(self, offset: int, *, wait: bool = True) -> int:
        """Return the position of the batch that contains `offset`; `size` for the end. Raises as `read`.

        In a gap, as a compacted segment has them, the position is that of the next batch, or `size`.
        """
        if offset >= self.end_offset:
            return self.size
        index = self._rows(wait)
        interval = self._open
        if not interval.size or offset - self.base_offset < interval.offset:
            row = index.row_of_offset(offset - self.base_offset)
            if row < 0:
                return self._after_gap(0, offset)
            interval = self._interval(index, row)
        data = self._read_interval(interval, wait)
        position = 0
        while position < interval.size:
            header = peek(data, position)
            if offset < header.end:
                return interval.position + position
            position += header.size
        return self._after_gap(interval.end, offset)

    def headers(self, start: int, stop: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and verified header of each batch between two boundaries. Blocks. Raises as `pieces`."""
        return headers_in(self.pieces(start, stop))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, Bytes]]:
        """Yield position and verified bytes of each piece between two boundaries. Blocks.

        Raises as `read`, after all batches before the damage.
        """
        # The size of a segment that no manifest lists is known once its index is loaded.
        self._rows(wait=True)
        stop = min(stop, self.size)
        while start < stop:
            end = self.piece_end(start, stop, SCAN_BYTES)
            try:
                data = self.read(start, end)
            except DamagedLog as damage:
                if damage.position <= start:
                    raise
                end = damage.position
                data = self.read(start, end)
            yield start, data
            start = end

    def proofs(self) -> Index:
        """Return a copy of the index with the open interval as its last row: the checksums of everything written."""
        still_open, index = self._open, self.index
        proofs = index.rows(0, len(index))
        if still_open.size and still_open.position == proofs.end:
            proofs.append(still_open)
        return proofs

    def resume(self, flushed_end: int) -> None:
        """Go to the end of the index, ready to add what follows (see `recovery.scan`).

        The index is trusted up to `flushed_end`: its rows may be on disk although their unflushed batches are lost.
        """
        self.close_interval()
        index = self.index
        first_unflushed = index.row_of_offset(flushed_end - 1 - self.base_offset) + 1
        if first_unflushed < len(index):
            index.truncate(index[first_unflushed].position)
        self.end_offset = self.base_offset
        self._allocated = self.file.size()
        while len(index):
            last = index[len(index) - 1]
            self.size = last.end
            with suppress(DamagedLog):
                *_, (_, header) = self.headers(last.position, last.end)
                if header.end <= flushed_end:
                    self.end_offset = header.end
                    break
            index.truncate(last.position)
            self.damaged.truncate(last.position)
        self.size, self._max_timestamp = index.end, index.max_timestamp()
        if len(index):
            self.first_timestamp = index[0].max_timestamp

    def truncate(self, position: int, end_offset: int) -> None:
        """Remove everything from batch boundary `position` on. Raises OSError, or as `read`: no batch is removed."""
        self.truncations += 1
        self.close_interval()
        index, file = self.index, self.file
        # If `position` is within an interval, the rest of that interval is the open one again.
        kept = index.end_of_row(index.row_of_position(position) - 1)
        rest, at = self._pread(kept, position - kept, wait=True), 0
        if index.is_outdated_after(position):
            # First: its rows must never be compared with the batches that replace the removed ones.
            empty(self._disk, self.index_path)
        file.truncate(position)
        # The segment takes appends again, so it holds its own index and file.
        self._index, self._file, self.is_sealed = index, file, False
        self._opened.forget(self)
        self._opened.opened_active(self)
        index.truncate(position)
        self.damaged.truncate(position)
        self.decoded_to = min(self.decoded_to, position)
        self.size, self.end_offset, self._allocated = index.end, end_offset, position
        self._max_timestamp = index.max_timestamp()
        while at < len(rest):
            header = peek(rest, at)
            self.note(header.base_offset, header.size, header.max_timestamp, (rest[at : at + header.size],))
            at += header.size

    def seal(self) -> None:
        """Seal the segment: free the preallocated rest, and write the whole index (both unsynced)."""
        self.save_index()
        if self._allocated > self.size:
            self.file.truncate(self.size)
            self._allocated = self.size
        self.retire()

    def retire(self) -> None:
        """Take no more appends: from now on `OpenSegments` holds file and index, as long as there is room."""
        self.close_interval()
        self.is_sealed = True
        # Held there before it is dropped here: a thread may be reading.
        if self._index is not None:
            self._opened.hold_index(self, self._index)
            self._index = None
        if self._file is not None:
            self._opened.hold_file(self, self._file)
            self._file = None

    def save_index(self, *, sync: bool = False) -> None:
        """Write the closed intervals that are not yet on disk, if the index is in memory."""
        index = self._loaded()
        if index is not None:
            self.write_index(index, sync=sync)

    def write_index(self, index: Index, *, sync: bool) -> None:
        """Write the rows of `index`, this segment's index, that are not yet on disk."""
        with closing(self._disk.open(self.index_path, create=True)) as file:
            index.save(file, self.base_offset)
            if sync:
                file.sync()

    def release(self) -> None:
        """Drop the file and, of a sealed segment, the index; both are opened again when needed.

        The file closes when its last reader, which may be in a thread, drops it.
        """
        self._file = None
        self._opened.forget(self)
        self._opened.forget_aborted(self.aborted)

    def index_bytes(self) -> int:
        return (self._index or self.index).size

    def take_index_damage(self) -> DamagedLog | None:
        """Return the damage found in the index file when it was loaded; None in later calls."""
        damage, self._index_damage = self._index_damage, None
        return damage

    def paths(self) -> tuple[str, str, str]:
        """Return index and segment paths. The indexes are removed first: they must not match a new segment's name."""
        return self.index_path, self.aborted.path, self.path

    def _open_file(self) -> File:
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            what = f"the file is missing, with the records from offset {self.base_offset} to {self.end_offset}"
            raise DamagedLog(self.path, 0, what) from None
        except OSError as error:
            raise read_failed(error, self.path, 0) from error
        if self.is_sealed:
            self._opened.hold_file(self, file)
        else:
            self._file = file
            self._opened.opened_active(self)
        return file

    def _loaded(self) -> Index | None:
        """Return the index if it is in memory."""
        return self._opened.index_of(self) if self._index is None else self._index

    def _load_index(self) -> Index:
        # The file of a sealed segment may be shorter than `size`, and its index still covers the lost end.
        reach = self.size if self.is_sealed else self.file.size()
        index, self._index_damage = read_index(self._disk, self.index_path, self.base_offset, reach)
        # Stored last: a thread and the event loop may both be here, and each must find a whole index.
        if not self.is_sealed:
            self._index = index
            return index
        if index.end < self.size:
            index = self._completed(index)
        self._opened.hold_index(self, index)
        return index

    def _rows(self, wait: bool) -> Index:
        index = self._loaded()
        if index is None:
            if not wait:
                raise NotInMemory
            index = self._load_index()
        return index

    def _interval(self, index: Index, row: int) -> Interval:
        # Read the open interval first: the event loop may close it while a thread reads.
        still_open = self._open
        if row < len(index):
            return index[row]
        if not still_open.size:
            raise DamagedLog(self.path, index.end, "no valid batch from this position on")
        return still_open

    def _pread(self, position: int, length: int, wait: bool) -> Bytes:
        file = self._file or self._opened.file_of(self)
        if file is None:
            if not wait:
                raise NotInMemory
            file = self._open_file()
        try:
            data: Bytes | None = file.pread_cached(length, position)
            if data is None:
                if not wait:
                    raise NotInMemory
                data = file.pread(length, position)
        except OSError as error:
            raise read_failed(error, self.path, position) from error
        if len(data) != length:
            raise DamagedLog(self.path, position + len(data), "the file ends before the end of its batches")
        return data

    def _read_interval(self, interval: Interval, wait: bool) -> Bytes:
        try:
            data = self._pread(interval.position, interval.size, wait)
        except DamagedLog:
            self.damaged.add(interval)
            raise
        self._verify(interval, data)
        return data

    def _verify(self, interval: Interval, data: Bytes) -> None:
        if crc32c(data) != interval.crc:
            self.damaged.add(interval)
            what = f"the {interval.size} bytes from this position on differ from what was written"
            raise DamagedLog(self.path, interval.position, what)

    def _after_gap(self, position: int, offset: int) -> int:
        """Return `position`, that of the first batch after `offset`. Raises DamagedLog if there must be no gap."""
        if self.is_lost or not self.generation:
            raise DamagedLog(self.path, position, f"no batch has offset {offset}")
        return position

    def _reserve(self, size: int) -> None:
        """Preallocate, more each time, so that a sync seldom has a new file length or new blocks to commit."""
        if self.size + size > self._allocated:
            more = max(size, min(max(ALLOCATE_AT_LEAST, self._allocated), ALLOCATE_AT_MOST))
            self.file.preallocate(self._allocated, self.size + more - self._allocated)
            self._allocated = self.size + more

    def _completed(self, index: Index) -> Index:
        """Complete the index of a sealed segment from its file. Damage on the way is reported by later reads."""
        directory = self.path.rpartition("/")[0]
        name = SegmentFile(self.base_offset, self.generation)
        whole = Segment(self._disk, directory, name, self._interval_bytes, self._opened)
        whole._file, whole._index, whole.epochs = self.file, index, self.epochs
        whole.resume(self.end_offset)
        scan_all(whole)
        whole.close_interval()
        if whole.end_offset == self.end_offset:
            # The file has all batches: the rest is preallocated space that a power cut brought back.
            self.size = whole.size
        return index


def headers_in(pieces: Iterable[tuple[int, Bytes]]) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch in pieces that end between batches."""
    for position, piece in pieces:
        at = 0
        while at < len(piece):
            header = peek(piece, at)
            yield position + at, header
            at += header.size
