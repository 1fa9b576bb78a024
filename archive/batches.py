"""Batches of an archived offset range, read from the store without brokers: verified, and a few requests ahead."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from crc32c import crc32c

from cordwood.archive import layout
from cordwood.archive.blocking import submit, wait
from cordwood.archive.catalog import ArchivedPartitionLog, DamagedObject, read_partition, read_state
from cordwood.archive.manifest import ArchivedSegment
from cordwood.archive.segment_state import SegmentState
from cordwood.archive.store import ObjectMissing, ObjectStore
from cordwood.columnar.batches import Aborted, FetchedBatches, Framed, split
from cordwood.columnar.errors import CorruptRecords, OffsetsGone
from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.storage.disk import Bytes
from cordwood.storage.index import Interval

CHUNK_BYTES = 4 << 20
"""Size of a request, unless one interval is larger."""
AHEAD = 3
"""Chunks that are read ahead of the one that is decoded."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Adjacent intervals of a segment, and the request of their bytes.

    `at` is the position of the segment among all. Batches below `start` are in the segment before, too, or are read.
    """

    at: int
    segment: ArchivedSegment
    intervals: Sequence[Interval]
    start: int
    content: Future[Bytes]


class ArchiveReader:
    """The reader of one partition. It follows its segments while they are compacted, and counts what it has read."""

    def __init__(
        self, store: ObjectStore, partition: ArchivedPartitionLog, *, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> None:
        self._store, self.partition, self._isolation = store, partition, isolation
        self._states: dict[int, Future[SegmentState]] = {}
        """Of the segments at and after the one that is being read, by position."""
        self.bytes_read = 0

    @property
    def end(self) -> int:
        """End of the offsets that can be read at the isolation level."""
        return self.partition.decided_end if self._isolation is Isolation.READ_COMMITTED else self.partition.end

    def fetch(self, wanted: OffsetRange, *, not_before_ms: int | None = None) -> Iterator[FetchedBatches]:
        """Yield the batches of a range of offsets that are archived, in order, each once.

        With `not_before_ms`, leave out batches without a record that late, as far as the index knows them. Raises
        OffsetsGone if segments are removed meanwhile, CorruptRecords, StoreError.
        """
        position = wanted.start
        while position < wanted.end:
            try:
                for end, fetched in self._fetch(wanted, position, not_before_ms):
                    if fetched.batches:
                        yield fetched
                    position = end
                return
            except ObjectMissing as missing:
                self._look_again(wanted, position, missing)
            except DamagedObject as damage:
                raise CorruptRecords(wanted.place, damage.offset, str(damage)) from None

    def _look_again(self, wanted: OffsetRange, position: int, missing: ObjectMissing) -> None:
        """Read the manifest again after an object was missing. Raises OffsetsGone, CorruptRecords, StoreError."""
        before = self.partition
        self._states.clear()
        self.partition = wait(read_partition(self._store, before.id))
        if self.partition == before:
            raise CorruptRecords(wanted.place, position, f"the archive lacks an object: {missing}")
        if position < self.partition.start or self.end < wanted.end:
            end = max(position, self.partition.start) if position < self.partition.start else wanted.end
            gone = OffsetRange(wanted.topic, wanted.partition, position, min(end, wanted.end))
            raise OffsetsGone(gone, "they are no longer in the archive (retention or deleted records)")

    def _fetch(
        self, wanted: OffsetRange, position: int, not_before_ms: int | None
    ) -> Iterator[tuple[int, FetchedBatches]]:
        """Yield batches, each time with the next offset to read. Raises ObjectMissing, DamagedObject, StoreError."""
        coming: deque[_Chunk] = deque()
        for chunk in self._chunks(wanted, position, not_before_ms):
            coming.append(chunk)
            if len(coming) > AHEAD:
                yield self._checked(wanted, coming.popleft())
        while coming:
            yield self._checked(wanted, coming.popleft())

    def _chunks(self, wanted: OffsetRange, position: int, not_before_ms: int | None) -> Iterator[_Chunk]:
        """Yield the chunks of a range, with their requests begun."""
        segments = self.partition.segments
        for at in range(self.partition.position_of(position), len(segments)):
            segment = segments[at]
            if segment.start_offset >= wanted.end:
                break
            if not_before_ms is not None and 0 <= segment.max_timestamp < not_before_ms:
                continue
            intervals = self._state(at).intervals
            if at + 1 < len(segments):
                self._begin_state(at + 1)
            name, _ = layout.segment_names(*self.partition.id, segment)
            base, start = segment.base_offset, max(position, segment.start_offset)
            for run in _runs(intervals, start - base, wanted.end - base, not_before_ms):
                request = self._store.get_range(name, run[0].position, run[-1].end)
                yield _Chunk(at, segment, run, start, submit(request))

    def _begin_state(self, at: int) -> Future[SegmentState]:
        if at not in self._states:
            self._states[at] = submit(read_state(self._store, self.partition.id, self.partition.segments[at]))
        return self._states[at]

    def _state(self, at: int) -> SegmentState:
        return self._begin_state(at).result()

    def _checked(self, wanted: OffsetRange, chunk: _Chunk) -> tuple[int, FetchedBatches]:
        """Return the next offset to read, and the batches of a chunk that are wanted."""
        data = chunk.content.result()
        self.bytes_read += len(data)
        for passed in [at for at in self._states if at < chunk.at]:
            del self._states[passed]
        base, begin, view = chunk.segment.base_offset, chunk.intervals[0].position, memoryview(data)
        for interval in chunk.intervals:
            if crc32c(view[interval.position - begin : interval.end - begin]) != interval.crc:
                name, _ = layout.segment_names(*self.partition.id, chunk.segment)
                raise DamagedObject(name, base + interval.offset, "does not match its checksums")
        found = split(data, wanted.place, base + chunk.intervals[0].offset)
        end = found[-1].header.end
        batches = [one for one in found if one.header.end > chunk.start and one.header.base_offset < wanted.end]
        return end, FetchedBatches(data, batches, self._aborted(chunk.at, batches))

    def _aborted(self, at: int, batches: Sequence[Framed]) -> list[Aborted]:
        """Return the aborted transactions with records in these batches of one segment.

        The marker of a transaction may be in a later segment.
        """
        if self._isolation is Isolation.READ_UNCOMMITTED or not any(one.header.is_transactional for one in batches):
            return []
        found: set[Aborted] = set()
        start, end = batches[0].header.base_offset, batches[-1].header.end
        for later in range(at, len(self.partition.segments)):
            state = self._state(later)
            if later > at and state.undecided >= end:
                break
            rows = (row for row in state.aborted if row.first_offset < end and row.marker_offset >= start)
            found.update(Aborted(row.producer_id, row.first_offset) for row in rows)
        return sorted(found, key=lambda one: one.first_offset)


def _runs(
    intervals: Sequence[Interval], start: int, end: int, not_before_ms: int | None
) -> Iterator[Sequence[Interval]]:
    """Yield the intervals with offsets from `start` up to `end`, in runs of adjacent ones of about CHUNK_BYTES."""
    run: list[Interval] = []
    for at, interval in enumerate(intervals):
        next_offset = intervals[at + 1].offset if at + 1 < len(intervals) else end
        is_wanted = interval.offset < end and (next_offset > start or at + 1 == len(intervals))
        if not_before_ms is not None and interval.max_timestamp < not_before_ms:
            is_wanted = False
        if run and (not is_wanted or interval.end - run[0].position > CHUNK_BYTES):
            yield run
            run = []
        if is_wanted:
            run.append(interval)
    if run:
        yield run
