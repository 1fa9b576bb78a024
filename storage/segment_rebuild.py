"""Rebuild of a sealed segment beside the damaged one: its sound intervals, and batches from other replicas.

The old segment is kept until the new one is complete, verified and synced. Batches of other replicas are verified by
their checksum, by their offsets, which have to fill the range without a gap, and by their leader epochs, which have to
be those of the log for these offsets. Where an epoch begins in the range or next to it, recovery may not have known at
which offset: the batches may have the epochs that the log has around the range, and tell where each begins. Of a
compacted log they may have gaps: the other replica has removed what this one may still have had. That replica must not
have records that were deleted by a tombstone which this log has lost (`lost_offsets.py`).
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import NO_TIMESTAMP, BatchHeader, end_of, headers
from cordwood.storage.compaction.lost_offsets import lost_end_in, lost_end_of
from cordwood.storage.compaction.run_writer import closing_batch, write_aborted
from cordwood.storage.compaction.swap import swap
from cordwood.storage.disk import Bytes, sync_directory
from cordwood.storage.epochs import EpochRange, LeaderEpochs
from cordwood.storage.errors import CorruptBatch, DamagedLog
from cordwood.storage.index import Index, Interval
from cordwood.storage.log import Log
from cordwood.storage.manifest import SealedSegment
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.scrub import pieces, read_each
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile
from cordwood.storage.transaction_log import aborted_again
from cordwood.storage.types import LeaderEpoch, Offset
from cordwood.storage.unseen_batches import UnseenBatches


class Missing(NamedTuple):
    """Offsets without a sound batch."""

    start: int
    end: int


class SegmentRebuild:
    """Rebuild of one segment. Iterate over `steps`, and `fill` each range that it yields before the next step.

    Both block on the disk. `replace_segment` is for the event loop, where the log is changed.
    """

    def __init__(self, log: Log, segment: Segment, directory: str) -> None:
        """`directory` holds unfinished segments; it exists, and is on the log's file system."""
        self._log, self._segment, self._directory = log, segment, directory
        self._log_start, self._end = log.log_start, segment.end_offset
        self._epochs = LeaderEpochs(tuple(log.epochs))
        self._new: Segment | None = None
        self._due = self._last_end = segment.base_offset
        self._has_gaps = log.config.compacted or segment.generation > 0
        """Whether other replicas may have compacted the fetched range more or less than this one."""
        self._truncations, self._has_fetched, self._has_fetched_markers = log.truncations, False, False
        self._fetched: list[tuple[Missing, list[EpochRange]]] = []
        """Ranges that were fetched, with the epochs of their batches."""
        self._aborted: dict[Segment, list[AbortedRow]] = {}
        """Aborted transactions of this segment and of later ones, where they are others than before."""
        self._has_found_aborted = False
        self._unseen: UnseenBatches | None = None
        """The log's transactions, read again, if the segment is the last one that was lost with the log's end."""

    def steps(self) -> Iterator[Missing | int]:
        """Copy the sound intervals. Yield bytes copied, and ranges to fill before the next step. Blocks on the disk.

        Everything is synced at the end. Raises OSError.
        """
        old, log = self._segment, self._log
        interval_bytes = log.config.index_interval_bytes
        name = SegmentFile(old.base_offset, max(old.generation, int(self._has_gaps)))
        new = Segment.create(log.disk, self._directory, name, interval_bytes, OpenSegments())
        self._new = new
        lost_from: int | None = None
        for intervals, contents in self._contents():
            for intact, some in _runs(intervals, contents):
                offset = old.base_offset + some[0][0].offset
                if not intact:
                    lost_from = offset if lost_from is None else lost_from
                    continue
                if lost_from is not None:
                    yield from self._missing(lost_from, offset)
                    lost_from = None
                new.adopt([content for _, content in some], [interval for interval, _ in some])
                self._due = self._last_end = end_of(some[-1][1])
            yield intervals[-1].end - intervals[0].position
        yield from self._missing(self._due if lost_from is None else lost_from, self._end)
        if self._has_gaps and self._last_end < self._end:
            closing = closing_batch(self._last_end, self._end, self._epochs.epoch_at(self._end - 1))
            new.append((closing,), ((self._last_end, len(closing), NO_TIMESTAMP),), self._end)
        new.end_offset = self._end
        new.close_interval()
        new.seal()
        new.file.sync()
        new.save_index(sync=True)
        unseen = None if log.lacks_archived_producers else log.unseen
        if unseen is not None and old.base_offset < unseen.end and unseen.start < self._end:
            self._unseen = UnseenBatches(log, unseen, self._segments)
            self.read_on()
        if self._unseen is None and ((self._has_gaps and self._has_fetched) or self._has_fetched_markers):
            self._find_aborted(new)
        if new.generation != old.generation:
            rows = self._aborted.pop(new, None)
            write_aborted(log.disk, new, old.aborted.undecided, old.aborted.rows() if rows is None else rows)
        sync_directory(log.disk, self._directory)

    def lost_end(self) -> int:
        """Return the offset up to which another replica must be compacted, so that no deleted record returns. Blocks.

        Raises OutOfResources, DiskFailed.
        """
        log, old, end = self._log, self._segment, 0
        segments = [segment for segment in log.segments if not 0 < log.pinned.end <= segment.base_offset]
        if not log.config.compacted or old not in segments:
            # From the end of a cut on, no tombstone goes.
            return 0
        if end := lost_end_in(segments[segments.index(old) + 1 :]):
            return end
        due: int | None = old.base_offset
        for intervals, contents in self._contents():
            for intact, some in _runs(intervals, contents):
                found = [header for _, content in some for header in headers(content)] if intact else []
                end = max(end, lost_end_of(found, found[0].base_offset if found and due is None else due or 0))
                due = found[-1].end if found else None
        return end

    @property
    def due(self) -> int:
        """Offset that the next batch must have."""
        return self._due

    def fill(self, missing: Missing, data: bytes) -> None:
        """Append batches of a missing range from `due` on. Raises CorruptBatch, with nothing appended, and OSError."""
        assert self._new is not None, "a range is known to be missing once the copy has reached it"
        taken = self._checked_batches(missing, data)
        self._has_fetched = True
        self._has_fetched_markers |= any(header.is_control for header in taken)
        if not self._fetched or self._fetched[-1][0] != missing:
            self._fetched.append((missing, []))
        ranges = self._fetched[-1][1]
        for one in taken:
            if not one.record_count:
                # It stands for batches that the log cleaner has removed, of this epoch and perhaps of earlier ones.
                continue
            if ranges and ranges[-1].epoch == one.leader_epoch:
                ranges[-1] = ranges[-1]._replace(end=Offset(one.end))
            else:
                ranges.append(EpochRange(LeaderEpoch(one.leader_epoch), Offset(one.base_offset), Offset(one.end)))
        if not taken:
            self._due = missing.end
            return
        size = sum(header.size for header in taken)
        rows = [(header.base_offset, header.size, header.max_timestamp) for header in taken]
        self._new.append((memoryview(data)[:size],), rows, taken[-1].end)
        self._due = self._last_end = taken[-1].end

    def is_behind(self) -> bool:
        """Return whether the log has to be read on before the segment is replaced."""
        return self._unseen is not None and self._unseen.is_behind()

    def read_on(self) -> None:
        """Read what was appended since the log was read. Blocks on the disk. Raises OutOfResources, DiskFailed."""
        try:
            if self._unseen is not None:
                self._unseen.read_on()
        except DamagedLog:
            # Other batches are still missing. The repair of the last segment reads the log.
            self._unseen = None

    def replace_segment(self) -> bool:
        """Replace the old segment by the new one. Return False if the log has changed there. Raises OSError.

        A rename that a power cut undoes leaves the old segment, with its damage.
        """
        log, old, new = self._log, self._segment, self._new
        assert new is not None, "it is whole"
        if old not in log.segments or old.end_offset != self._end or log.truncations != self._truncations:
            return False
        self.read_on()
        for missing, found in self._fetched:
            log.epochs.correct(missing.start, missing.end, found)
        if self._has_found_aborted:
            log.transactions_read_again(old)
        for segment, rows in self._aborted.items():
            (old if segment is new else segment).aborted.replace(rows)
        if self._has_gaps and self._has_fetched:
            # Another replica may have kept what this one had removed: the next round compacts it again.
            log.clean_end = min(log.clean_end, old.base_offset)
        if self._unseen is not None:
            self._unseen.put_in_place({} if new.generation != old.generation else {new: old.aborted})
        if new.generation != old.generation:
            swap(log, [old], new)
            return True
        log.disk.rename(new.index_path, old.index_path)
        log.disk.rename(new.path, old.path)
        row = SealedSegment(
            old.base_offset, self._end, new.size, new.max_timestamp, old.base_offset, generation=old.generation
        )
        rebuilt = Segment.listed(log.disk, log.directory, row, log.config.index_interval_bytes, log.opened)
        # It has the same markers, and the file of their aborted transactions stays.
        rebuilt.aborted = old.aborted
        log.replace([old], rebuilt)
        return True

    def abort(self) -> None:
        """Remove the files of the new segment. Blocks on the disk."""
        if self._new is not None:
            self._new.release()
            for path in filter(self._log.disk.exists, self._new.paths()):
                self._log.disk.remove(path)

    def _find_aborted(self, new: Segment) -> None:
        """Find the aborted transactions again that batches of another replica may belong to. Blocks on the disk.

        This replica may have removed their data, and their rows in the aborted indexes of this and of later segments,
        or recovery has not seen their markers.
        """
        log, old, segments = self._log, self._segment, self._segments()
        new.aborted.undecided = old.aborted.undecided
        for segment in segments[segments.index(new) :] if new in segments and log.producers.transactions.end else ():
            if segment is not new and segment.base_offset >= log.clean_end:
                break
            with suppress(DamagedLog):
                rows = list(aborted_again(segments, segment, segment.end_offset))
                known = (old if segment is new else segment).aborted
                if known.missing or rows != known.rows():
                    self._aborted[segment], self._has_found_aborted = rows, True

    def _segments(self) -> list[Segment]:
        """Return the log's segments, with the new one in the place of the old one."""
        new = self._new
        assert new is not None, "it is made before it is looked for"
        return [new if segment is self._segment else segment for segment in self._log.segments]

    def _contents(self) -> Iterator[tuple[list[Interval], list[Bytes | None]]]:
        """Yield the intervals of the old segment, if it has any, with their bytes; None for unreadable ones."""
        old = self._segment
        try:
            index = old.index.rows(0, len(old.index))
            file = self._log.disk.open(old.path)
        except (DamagedLog, FileNotFoundError):
            index = Index()
        if not len(index):
            return
        with closing(file):
            for intervals in pieces(index):
                yield intervals, read_each(file, intervals)

    def _missing(self, start: int, end: int) -> Iterator[Missing]:
        """Yield the range to fill, without offsets below the log start offset, which no reader needs."""
        self._due = max(start, min(end, self._log_start))
        if self._due < end:
            yield Missing(self._due, end)
            assert self._due == end, "a missing range is filled before the next step"

    def _checked_batches(self, missing: Missing, data: bytes) -> list[BatchHeader]:
        """Return the batches of `data` that are in the range; none if a gap reaches past it. Raises CorruptBatch."""
        taken: list[BatchHeader] = []
        due, epoch_at = self._due, self._epochs.epoch_at
        latest, last = epoch_at(missing.start - 1), epoch_at(missing.end)
        if self._fetched and self._fetched[-1][0] == missing and self._fetched[-1][1]:
            latest = self._fetched[-1][1][-1].epoch
        for header in headers(data):
            if header.base_offset >= missing.end:
                break
            is_first_readable = due == self._log_start and header.base_offset < due < header.end
            is_after_gap = self._has_gaps and header.base_offset > due
            if header.base_offset != due and not is_first_readable and not is_after_gap:
                raise CorruptBatch(f"offset {header.base_offset}, but {due} was expected")
            if header.end > missing.end:
                raise CorruptBatch(f"a batch up to offset {header.end}, but the next one starts at {missing.end}")
            if not latest <= header.leader_epoch <= last:
                raise CorruptBatch(f"leader epoch {header.leader_epoch} instead of epoch {latest} to {last}")
            latest = LeaderEpoch(header.leader_epoch)
            taken.append(header)
            due = header.end
        if not taken and not (data and self._has_gaps):
            raise CorruptBatch(f"no batch with offset {due}")
        return taken


_IntervalBytes = tuple[Interval, Bytes]


def _runs(intervals: list[Interval], contents: list[Bytes | None]) -> Iterator[tuple[bool, list[_IntervalBytes]]]:
    """Yield runs of adjacent intervals that are all sound, or all damaged."""
    run: list[_IntervalBytes] = []
    was_intact = True
    for interval, content in zip(intervals, contents, strict=True):
        is_intact = content is not None and crc32c(content) == interval.crc
        if run and is_intact != was_intact:
            yield was_intact, run
            run = []
        run.append((interval, b"" if content is None else content))
        was_intact = is_intact
    if run:
        yield was_intact, run
