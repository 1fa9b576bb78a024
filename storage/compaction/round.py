"""Round of the log cleaner over one log: the last offset of each key is collected, and the segments are rewritten.

First the offset map takes the keys from the log's clean end on, as far as it has room. Then all segments from the log's
start to the map's end are rewritten: a run of segments becomes one segment of the next generation, of `segment.bytes`
at most. Each rewritten segment is complete, indexed, verified and synced before it replaces the run (`swap.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import BatchHeader
from cordwood.storage.compaction.filter import BatchFilter, needed_offsets
from cordwood.storage.compaction.offset_map import OffsetMap, OffsetMapBuilder
from cordwood.storage.compaction.run_writer import RunWriter, pieces_of, verified, write_aborted
from cordwood.storage.compaction.swap import discard, has_run, swap
from cordwood.storage.disk import Bytes, sync_directory
from cordwood.storage.errors import DamagedLog
from cordwood.storage.log import Log
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile

OFFSETS_PER_RUN_MAX = (1 << 31) - 1
SEGMENTS_PER_RUN_MAX = 8
"""Full segments that are rewritten before the first swap: an aborted round loses no more work."""


class Rewritten(NamedTuple):
    """A run of segments that was rewritten: to be swapped before the next step."""

    old: tuple[Segment, ...]
    new: Segment
    """In the round's directory. Its offsets are those of the old ones together."""


def all_counted(batches: Bytes) -> Bytes:
    return batches


class CleaningRound:
    """One round. Iterate over `steps` in a thread, and call `swap` for each `Rewritten` before the next step.

    Create it, and call `swap` and `finish`, where the log is changed (the event loop); `steps` and `abort` block on the
    disk. The round may be aborted between any two steps, with `abort`; there must be no swap after that. Swapped
    segments stay, and the next round begins at the log's unchanged clean end.
    """

    def __init__(
        self,
        log: Log,
        directory: str,
        limit: int,
        now_ms: int,
        buffer_bytes: int,
        seed: bytes,
        counted: Callable[[Bytes], Bytes] = all_counted,
        above: tuple[int, int] | None = None,
    ) -> None:
        """Begin a round that leaves everything at or above `limit` as it is.

        `limit` is at most the last stable offset and the high watermark. Only whole segments below it that the manifest
        on disk lists are cleaned: a checkpoint just before the round lists more of them. `above` is the end of a pinned
        cut, below which nothing is rewritten, and the end of earlier rounds above it. `directory` holds unfinished
        segments; it exists, belongs to this log alone, and is on the log's file system. `buffer_bytes` limits the
        offset map; `seed`, of SEED_BYTES, is that of its hashes. `delete.retention.ms` is taken from the log's
        configuration. `counted` empties batches whose records replace no others.
        """
        self._log, self._directory, self._config = log, directory, log.config
        self._now_ms, self._buffer_bytes, self._seed, self._counted = now_ms, buffer_bytes, seed, counted
        self._all, self._truncations = tuple(log.segments), log.truncations
        limit = min(limit, log.listed_end)
        self.begin, clean_end = above or (0, log.clean_end)
        """Offset below which nothing is rewritten."""
        self._segments = [one for one in self._all[:-1] if one.base_offset >= self.begin and one.end_offset <= limit]
        first = self._segments[0].base_offset if self._segments else log.log_end
        self.start = self.end = max(clean_end, log.log_start, first)
        """Range of offsets whose keys this round has collected."""
        self._generation = max([segment.generation for segment in self._segments], default=0) + 1
        self._needed = needed_offsets(log.producers)
        self._new: Segment | None = None
        self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = 0
        self.map_utilization = 0.0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to clean that was not cleaned before."""
        return bool(self._segments) and self._segments[-1].end_offset > self.start

    def steps(self) -> Iterator[int | Rewritten]:
        """Yield the bytes read or written since the last step, or a run to swap. Blocks on the disk.

        Raises DamagedLog if a segment is damaged, CorruptBatch if its batches cannot be decoded: the segment has to be
        repaired first. Raises OSError, OutOfResources and DiskFailed as well. After each of them: `abort`.
        """
        if not self._segments:
            return
        offsets = OffsetMap(self._buffer_bytes, self.start, self._segments[-1].end_offset, self._seed)
        yield from self._collect(offsets)
        self.map_utilization = offsets.utilization
        batches = BatchFilter(
            offsets,
            end=self.end,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            needed=self._needed,
            # Otherwise only the archive has the first records, or a cut keeps them as they are.
            is_whole=self._log.local_start <= self._log.log_start and not self.begin,
        )
        segments = [each for each in self._segments if each.base_offset < min(each.end_offset, self.end)]
        while segments:
            for step in self._rewrite_run(segments, batches):
                yield step
                if isinstance(step, Rewritten):
                    segments = segments[len(step.old) :]
            self.records_read, self.records_kept = batches.records_read, batches.records_kept

    def swap(self, rewritten: Rewritten) -> bool:
        """Replace the old segments in the log. Return False if the log was truncated, dropped or repaired meanwhile.

        Not while a truncation is pending (`Partition.is_checkpoint_locked`): its checkpoint, which lists the old
        segments, may be on its way to the disk, and is the last one before the truncation. Then the round has to be
        aborted (`abort`). A checkpoint of the log commits the swap; until then a restart finds the old segments. Their
        files are to be deleted after that checkpoint and the delete delay, those that
        `log.replaced.take(rewritten.old)` returns then. Raises OSError, after which the log has the old segments.
        """
        log = self._log
        if log.truncations != self._truncations or not has_run(log, rewritten.old):
            return False
        swap(log, rewritten.old, rewritten.new)
        rewritten.new.release()
        self._new = None
        return True

    def finish(self) -> bool:
        """Raise the log's clean end after the last step. Return False if the log was truncated meanwhile.

        A round above a cut leaves it: of the cut's records nothing was compacted.
        """
        log = self._log
        if log.truncations != self._truncations:
            return False
        if not self.begin:
            log.clean_end = max(log.clean_end, self.end)
        return True

    def abort(self) -> None:
        """Remove the files of an unfinished segment. Blocks on the disk. May be called at any time, also twice."""
        new, self._new = self._new, None
        if new is not None:
            discard(self._log, new)

    def _collect(self, offsets: OffsetMap) -> Iterator[int]:
        """Put the keys from `start` on into the map, and set `end`."""
        builder = OffsetMapBuilder(offsets)
        for place, segment in enumerate(self._segments):
            if segment.end_offset <= self.start:
                continue
            builder.expect(self._aborted_in(place, segment))
            position = segment.locate(self.start) if segment.base_offset < self.start else 0
            for data in pieces_of(segment, position):
                has_room = builder.add(self._counted(data))
                self.bytes_read += len(data)
                yield len(data)
                if not has_room:
                    self.end = offsets.end
                    return
            self.end = segment.end_offset

    def _rewrite_run(self, segments: Sequence[Segment], batches: BatchFilter) -> Iterator[int | Rewritten]:
        """Rewrite the first of the segments, and those after it as far as one new segment has room for them."""
        log, interval_bytes = self._log, self._config.index_interval_bytes
        file = SegmentFile(segments[0].base_offset, self._generation)
        self._new = new = Segment.create(log.disk, self._directory, file, interval_bytes, OpenSegments())
        writer, run = RunWriter(new, interval_bytes), list[Segment]()
        for segment in segments:
            if run and not self._has_room(run, writer, segment):
                break
            run.append(segment)
            batches.expect(self._aborted_in(self._all.index(segment), segment))
            for data in pieces_of(segment):
                writer.add(batches.filter(data))
                self.bytes_read += len(data)
                yield len(data)
        writer.finish(_last_batch(run[-1]), run[-1].end_offset)
        write_aborted(log.disk, new, run[0].aborted.undecided, batches.take_aborted())
        sync_directory(log.disk, self._directory)
        self.bytes_written += new.size
        yield new.size
        yield from verified(new)
        yield Rewritten(tuple(run), new)

    def _has_room(self, run: Sequence[Segment], writer: RunWriter, segment: Segment) -> bool:
        """Return whether a rewritten run has room for another segment, even if nothing of it is removed."""
        return (
            run[-1].end_offset == segment.base_offset
            and writer.size + segment.size <= self._config.segment_bytes
            and segment.end_offset - run[0].base_offset <= OFFSETS_PER_RUN_MAX
            and sum([each.size for each in run]) < SEGMENTS_PER_RUN_MAX * self._config.segment_bytes
        )

    def _aborted_in(self, place: int, segment: Segment) -> Iterator[AbortedRow]:
        """Yield the aborted transactions with records in the segment at `place`: a later one may have the marker."""
        for later in self._all[place:]:
            if later.aborted.undecided >= segment.end_offset:
                break
            yield from later.aborted.overlapping(segment.base_offset, segment.end_offset)


def _last_batch(segment: Segment) -> BatchHeader:
    """Return the last batch of a sealed segment. Raises DamagedLog."""
    index = segment.index
    if not len(index):
        raise DamagedLog(segment.path, 0, "the segment has no batch")
    *_, (_, header) = segment.headers(index[len(index) - 1].position, segment.size)
    return header
