"""One partition's log: segments, leader epochs, producer state, log start offset, log end offset, flushed end.

Appends go to the page cache. `begin_flush` returns what to sync, and `flushed` records that it is on disk.
`log_loader.py` opens a log; `state.py` has the state that survives a restart.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cordwood.storage.aborted_index import AbortedTransaction, aborted_between
from cordwood.storage.batch import (
    CONTROL,
    NO_TIMESTAMP,
    STAMP_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    check,
    check_ascending,
    in_groups,
    stamp,
    with_append_time,
)
from cordwood.storage.config import LogConfig
from cordwood.storage.control import NO_MARKERS, EndTransactionMarker, Markers, markers_in
from cordwood.storage.disk import Bytes, Disk, sync_directory
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog, NotLocal, OffsetOutOfRange, TruncationUnsynced
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.pending_flush import PendingFlush, UnsyncedEntries
from cordwood.storage.pins import NOT_PINNED
from cordwood.storage.positions import CachedPositions
from cordwood.storage.producers import Producers
from cordwood.storage.replaced_segments import ReplacedSegments
from cordwood.storage.retention import droppable
from cordwood.storage.rewrite import sync_again
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile
from cordwood.storage.segment_roll import directories_to, is_full
from cordwood.storage.slices import Slice, read_end
from cordwood.storage.state import ArchivedBeginning, LogState, Unseen, state_as_of, write_checkpoint
from cordwood.storage.transaction_log import producers_again, record
from cordwood.storage.truncation_plan import truncation_point

SMALL_BATCH_BYTES = 8 << 10
"""Largest batch that is copied on append: the copy is cheaper than a gathering write and a read for the followers."""


class Appended(NamedTuple):
    """Offsets of a batch in the log. `append_time` is NO_TIMESTAMP unless the broker's clock set the timestamps."""

    base_offset: int
    end_offset: int
    append_time: int = NO_TIMESTAMP
    is_duplicate: bool = False
    kept: bytes | None = None
    """Bytes of a small batch as the log stores them."""


class Log:
    """The log of one partition in `directory`. Nothing is on disk before the first append."""

    __slots__ = (
        "_covered_end",
        "_covers_truncation",
        "_has_gaps",
        "_positions",
        "_unsynced",
        "begins_anew",
        "clean_end",
        "config",
        "damage",
        "directory",
        "discard",
        "disk",
        "epochs",
        "flushed_end",
        "flushed_start",
        "has_unsynced_truncation",
        "is_flushing",
        "lacks_archived_epochs",
        "listed_end",
        "log_end",
        "log_start",
        "must_roll",
        "opened",
        "pinned",
        "producers",
        "recovery_point",
        "replaced",
        "segments",
        "truncations",
        "uncheckpointed_bytes",
        "unseen",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, opened: OpenSegments | None = None) -> None:
        """`opened` is shared with the broker's other logs."""
        self.disk, self.directory, self.config = disk, directory, config
        self.segments: list[Segment] = []
        self.log_start = self.log_end = self.flushed_end = 0
        self.flushed_start = 0
        """Log start offset that a restart would find."""
        self.clean_end = 0
        """End of the compacted records."""
        self.listed_end = 0
        """End of the segments that the manifest on disk lists."""
        self.truncations = 0
        self.replaced = ReplacedSegments()
        self._has_gaps = False
        """Whether the batches that were appended last have gaps between their offsets."""
        self.pinned = NOT_PINNED
        self.epochs, self.producers = LeaderEpochs(), Producers()
        self.lacks_archived_epochs = False
        """Whether the leader epochs below the local start are lost: the archive has them.

        Until `restore_epochs` the damaged file stays, so that a restart knows this, too.
        """
        self.damage: list[DamagedLog] = []
        self.unseen: Unseen | None = None
        """Offsets of batches that recovery has not seen."""
        self.must_roll = False
        self.recovery_point = 0
        self.uncheckpointed_bytes = 0
        """Bytes appended since the last checkpoint: about as many as a restart has to read again."""
        self._unsynced = UnsyncedEntries()
        self.is_flushing = False
        """Whether a group commit of this log's files is running."""
        self._covered_end = 0
        self.has_unsynced_truncation = self._covers_truncation = False
        """Whether the disk may still have truncated batches, and whether the running group commit removes them."""
        self.begins_anew = False
        """Whether the disk still has the checkpoint of the log that was here before, which was removed whole."""
        self._positions = CachedPositions()
        self.opened = opened or OpenSegments()
        self.discard: Callable[[str], None] = disk.remove
        """Removes the file of a truncated segment, or moves it away."""

    @property
    def size(self) -> int:
        """Size of all batches in bytes."""
        return sum(segment.size for segment in self.segments)

    @property
    def local_start(self) -> int:
        """First offset that this disk has: records from the log start offset up to here are only in the archive."""
        return max(self.log_start, self.segments[0].base_offset) if self.segments else self.log_end

    @property
    def lacks_archived_producers(self) -> bool:
        """Whether transactions are unknown that began where only the archive has batches (`after_archive.py`)."""
        unseen = self.unseen
        return unseen is not None and max(unseen.start, self.log_start) < min(unseen.end, self.local_start)

    @property
    def lacks_archived_state(self) -> bool:
        """Whether leader epochs or producers of records that only the archive has are lost."""
        return self.lacks_archived_epochs or self.lacks_archived_producers

    def may_span_archive(self, segment: Segment) -> bool:
        """Return whether a marker in `segment` may end a transaction that began where only the archive has batches."""
        return self.log_start < self.local_start and segment.aborted.undecided < self.local_start

    def transactions_read_again(self, segment: Segment) -> None:
        """Record that the transactions of a segment were read again: one that began in the archive was missed."""
        if self.may_span_archive(segment):
            self.lost_archived_producers()

    def lost_archived_producers(self) -> None:
        """Record that the producers of records that only the archive has, if there are any, are lost."""
        if self.log_start < self.local_start:
            self.has_not_seen(self.log_start, self.local_start)

    def has_no_archived_producers(self) -> None:
        """Record that nothing can tell the producers as of the local start any more."""
        if self.unseen is not None:
            self.unseen = self.unseen.above(self.local_start)

    def has_not_seen(self, start: int, end: int) -> None:
        """Record that recovery has not seen the batches from `start` to `end`."""
        self.unseen = Unseen.joined(self.unseen, start, end)

    def unseen_below(self, end: int, again: Producers | None) -> Unseen | None:
        """Return what is unseen after a truncation to `end`; `again` is what it has read from the batches."""
        unseen = self.unseen and self.unseen.below(end)
        if again is None or not self.may_span_archive(self.segment_of(end)):
            return unseen
        return Unseen.joined(unseen, self.log_start, self.local_start)

    @property
    def has_unlisted_segments(self) -> bool:
        """Whether a sealed segment is in no manifest on disk yet."""
        return len(self.segments) > 1 and self.segments[-2].end_offset > self.listed_end

    def append(
        self,
        batch: Bytes,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        marker: EndTransactionMarker | None = None,
    ) -> Appended:
        """Append one batch from a client: stamp its offset and leader epoch, and write it to the page cache.

        `header` is `check(batch)`; `marker` is that of a control batch. A duplicate batch of an idempotent producer is
        not written again. Raises OutOfOrderSequence, StaleProducerEpoch, InvalidTransactionState; TruncationUnsynced;
        OSError, OutOfResources, DamagedLog or DiskFailed if the write failed. After an error nothing is appended.
        """
        if header.producer_id >= 0 and (known := self.producers.check(header)) is not None:
            return Appended(known.base_offset, known.end_offset, is_duplicate=True)
        append_time = now_ms if self.config.log_append_time else NO_TIMESTAMP
        if self.config.log_append_time:
            batch = with_append_time(batch, now_ms)
            header = check(batch)
        base = self.log_end
        end = base + header.last_offset_delta + 1
        size = len(batch)
        segment = self._segment_for(size, header.max_timestamp, end)
        pieces: tuple[Bytes, ...] = (stamp(header, base, leader_epoch), memoryview(batch)[STAMP_BYTES:])
        kept = b"".join(pieces) if size <= SMALL_BATCH_BYTES else None
        if kept is not None:
            pieces = (kept,)
        segment.append(pieces, ((base, size, header.max_timestamp),), end)
        self._appended(segment, header, base, end, leader_epoch, now_ms, marker)
        return Appended(base, end, append_time, False, kept)

    def append_stamped(self, data: Bytes, batches: Sequence[BatchHeader], now_ms: int) -> None:
        """Append the batches of `data` as their leader stamped them (a follower's append).

        `batches` is `headers(data)`; a compacted log has gaps between them. Raises CorruptBatch, before any write, if
        an offset is below the end of the batch before; as `append` if the write failed.
        """
        attributes, has_gaps = check_ascending(batches, self.log_end)
        if has_gaps:
            self._expect_gaps()
        markers = markers_in(data, batches) if attributes & CONTROL else NO_MARKERS
        view, start = memoryview(data), 0
        # The usual case: all of them fit into one segment.
        is_one_group = len(data) <= self.config.segment_bytes
        for group in (batches,) if is_one_group else in_groups(batches, self.config.segment_bytes):
            rows = [(header.base_offset, header.size, header.max_timestamp) for header in group]
            size, end = sum([size for _, size, _ in rows]), group[-1].end
            # Each segment that is rolled for these batches may have gaps.
            self._has_gaps |= has_gaps
            segment = self._segment_for(size, max([timestamp for _, _, timestamp in rows]), end)
            segment.append((view[start : start + size],), rows, end)
            self._appended_all(segment, group, size, now_ms, markers)
            start += size

    def begin_flush(self) -> PendingFlush:
        """Take the files that have to be synced for all appends so far.

        The caller owns it, and calls `flushed` afterwards.

        Raises OSError: then everything is still to be synced, with the next call.
        """
        assert not self.is_flushing, "one group commit at a time"
        files, directories = self._unsynced.take(self.disk)
        segment = self.segments[-1] if self.segments else None
        self.is_flushing = True
        self._covered_end = self.log_end
        self._covers_truncation = self.has_unsynced_truncation
        return PendingFlush(files, directories, self.log_end, segment, segment.size if segment else 0)

    def flushed(self, pending: PendingFlush) -> None:
        """Record that everything of `pending` is on disk."""
        self.is_flushing = False
        pending.close_directories()
        self.flushed_end = max(self.flushed_end, self._covered_end)
        if self._covers_truncation:
            self.has_unsynced_truncation = False
        if pending.segment is not None and self._covered_end == pending.end_offset:
            self._positions.remember(pending.end_offset, pending.segment, pending.position)

    def flush_failed(self, pending: PendingFlush) -> None:
        """End the flush whose outcome is unknown. Nothing more is to be synced here."""
        self.is_flushing = False
        pending.close_directories()

    def slice(self, offset: int, max_bytes: int, end: int, *, wait: bool = True) -> Slice | None:
        """Return the batches from the one that contains `offset`, up to `end`, at most `max_bytes` but at least one.

        Return None if there is nothing below `end` yet. A gap in a compacted log is passed over. Raises
        OffsetOutOfRange; NotLocal if only the archive has the batch; DamagedLog if the bytes differ from what was
        written; NotInMemory if the disk would have to be read and `wait` is off.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")
        end = min(end, self.log_end)
        if offset >= end:
            return None
        if not self.segments or offset < self.segments[0].base_offset:
            raise NotLocal(f"offset {offset} is only in the archive: the records here begin at {self.local_start}")
        segment = self.segment_of(offset)
        if offset >= segment.end_offset:
            raise DamagedLog(segment.path, segment.size, f"the records from offset {segment.end_offset} on are missing")
        start = self._positions.locate(segment, offset, wait=wait)
        while start == segment.size and segment.end_offset < end:
            # A gap up to the end of the segment.
            segment = self.segment_of(segment.end_offset)
            start = self._positions.locate(segment, segment.base_offset, wait=wait)
        stop = segment.size if end >= segment.end_offset else self._positions.locate(segment, end, wait=wait)
        if stop <= start:
            return None
        intact = segment.damaged.intact_end(segment.path, start, stop)
        if stop - start > max_bytes or intact < stop:
            stop = read_end(segment, start, intact, max_bytes, wait=wait)
        elif end < segment.end_offset and not wait:
            self._positions.remember(end, segment, stop)
        return Slice(segment, start, stop, segment.truncations)

    def read_for_replication(self, offset: int, max_bytes: int, *, wait: bool = True) -> tuple[Slice, int] | None:
        """Return a slice for a follower, up to the log end offset, flushed or not; and the offset after the slice.

        A follower begins with the whole batch that contains the local start. Raises as `slice`.
        """
        if offset < self.log_start and offset == self.start_boundary(wait=wait):
            offset = self.log_start
        found = self.slice(offset, max_bytes, self.log_end, wait=wait)
        if found is None:
            return None
        next_offset = found.next_offset(wait=wait)
        if not wait:
            self._positions.remember(next_offset, found.segment, found.stop)
        return found, next_offset

    def start_boundary(self, *, wait: bool = True) -> int:
        """Return the base offset of the batch that contains the local start, or the local start if none does.

        DeleteRecords leaves that batch whole. Raises DamagedLog, and NotInMemory as `slice`.
        """
        start = self.local_start
        if start == self.log_end or not self.segments:
            return start
        segment = self.segment_of(start)
        if start <= segment.base_offset:
            return start
        return min(self._positions.batch_base(segment, start, wait=wait), start)

    def read(self, offset: int, max_bytes: int, end: int) -> bytes:
        """Return the batches of `slice` as bytes; empty if there are none. Blocks on the disk."""
        found = self.slice(offset, max_bytes, end)
        return b"" if found is None else bytes(found.segment.read(found.start, found.stop))

    def aborted(self, start: int, end: int, *, wait: bool = True) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `start` up to `end`, sorted by first offset.

        Raises DamagedLog, and NotInMemory as `slice`.
        """
        first = max(bisect_right(self.segments, start, key=lambda segment: segment.base_offset) - 1, 0)
        return aborted_between((segment.aborted for segment in self.segments[first:]), start, end, wait=wait)

    def truncate(self, end: int, again: Producers | None = None) -> None:
        """Remove every batch with a record at or above `end` (a follower whose leader does not have them).

        `truncation_plan.state_before_truncation` must be on disk already: the recovery point is lowered before bytes
        are removed, or a crash in between would look like a loss. A whole segment is removed unread, whatever is in it.
        Durable with the next group commit, before which no append is possible. Raises OSError, OutOfResources,
        DamagedLog: the truncation may be partial, and must be called again.
        """
        if end >= self.log_end:
            return
        segment, position, end = truncation_point(self, end)
        again = producers_again(self, segment, end, again)
        self._remove_replaced(end)
        if end > segment.base_offset:
            segment.aborted.truncate(end)
        self.unseen = self.unseen_below(end, again)
        self.log_start, self.flushed_start = min(self.log_start, end), min(self.flushed_start, end)
        self.producers.truncate_end(end, again)
        self.recovery_point, self.clean_end = min(self.recovery_point, end), min(self.clean_end, end)
        self.listed_end = min(self.listed_end, end, segment.base_offset)
        while self.segments and self.segments[-1].base_offset >= end:
            self._remove(self.segments[-1])
            self.segments.pop()
        # A segment that the manifest lists must not change, unless the manifest was rewritten without it before.
        self.must_roll = end <= segment.base_offset or segment.is_lost or position == segment.size
        if segment.is_lost:
            segment.end_offset = min(segment.end_offset, end)
        elif not self.must_roll:
            segment.truncate(position, end)
            self._unsynced.wrote(segment.path, segment.file)
        self._unsynced.changed(self.directory)
        self._positions.clear()
        self.log_end = end
        self.flushed_end = min(self.flushed_end, end)
        # A running sync does not cover the batches that replace the truncated ones.
        self._covered_end = min(self._covered_end, end)
        self.has_unsynced_truncation, self._covers_truncation = True, False
        self.epochs.truncate_end(end)

    def truncate_fully(self, offset: int, before: ArchivedBeginning | None = None) -> None:
        """Remove everything and begin again at `offset`.

        As `truncate`, with `state_before_full_truncation` on disk. Once the removal is durable, `write_new_log` writes
        the same `state_of_new_log`, and `begun_anew` is called: before that no append is possible.
        """
        self._remove_replaced(0)
        for segment in reversed(self.segments):  # After a crash the log lacks its end, never its beginning.
            self._remove(segment)
        self.segments = []
        self._unsynced.changed(self.directory)
        self._positions.clear()
        self.log_start, self.epochs, self.producers = before or (offset, LeaderEpochs(), Producers())
        self.flushed_start = min(self.flushed_start, self.log_start)
        self.log_end = self.flushed_end = self.recovery_point = offset
        self._covered_end = min(self._covered_end, offset)
        self.has_unsynced_truncation, self._covers_truncation = True, False
        self.begins_anew = True
        self.damage, self.unseen, self.lacks_archived_epochs = [], None, False
        self.clean_end = self.listed_end = 0

    def begun_anew(self) -> None:
        """Record that the checkpoint of the new log is on disk."""
        self.begins_anew, self.flushed_start = False, self.log_start
        self.producers.encoded()

    def restore_epochs(self, known: LeaderEpochs, end: int) -> None:
        """Take the leader epochs of the records below `end` from those `known`, by the archive or by the batches."""
        self._replace_epochs(self.epochs.after(known, end))
        self.epochs.truncate_start(self.log_start)
        self.lacks_archived_epochs = False

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start offset (DeleteRecords, retention). Durable with the next checkpoint.

        Raises OffsetOutOfRange.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start} to {self.log_end}")
        self.log_start = offset
        self.epochs.truncate_start(offset)
        self.lacks_archived_epochs &= offset < self.local_start

    def drop(self, high_watermark: int, now_ms: int, archived_end: int | None = None) -> list[Segment]:
        """Remove and return the segments that retention deletes. The caller deletes their files, off the event loop.

        The log start offset of an archived topic stays. `archived_end` is that of `droppable`.
        """
        # Local retention takes nothing from a cut: the archive still has it.
        unpinned_end = high_watermark if self.config.is_archived else min(high_watermark, self.pinned.start)
        count = droppable(self.segments, self.config, self.log_start, unpinned_end, now_ms, archived_end)
        if count == 0:
            return []
        if count == len(self.segments):
            self._roll()
        dropped, self.segments = self.segments[:count], self.segments[count:]
        for segment in dropped:
            self._unsynced.removed(segment.path)
        if not self.config.is_archived and self.segments[0].base_offset > self.log_start:
            self.raise_log_start(self.segments[0].base_offset)
        return dropped

    def segment_of(self, offset: int) -> Segment:
        """Return the segment with `offset`, or the nearest one if there is none; there has to be a segment."""
        place = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[max(place - 1, 0)]

    def roll_if_active(self, segment: Segment) -> None:
        """Roll a new segment if `segment` is active, so that `segment` changes no more. Raises OSError."""
        if segment is self.segments[-1] and not segment.is_sealed:
            self._roll()

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace adjacent sealed segments by one of the same offsets. Slices given out before read the old files.

        If the new one has other names, the next checkpoint commits this with its manifest, and after that the old files
        may be deleted (`ReplacedSegments.take`).
        """
        first = self.segments.index(old[0])
        new.epochs = self.epochs
        self.segments[first : first + len(old)] = [new]
        for segment in old:
            self.opened.forget(segment)
        self._positions.clear()
        if new.generation != old[0].generation:
            self.replaced.add(old, new)

    def state(self) -> LogState:
        """Return the checkpoint of the log as of now. Also writes the new rows of its indexes (unsynced)."""
        for segment in self.segments:
            if segment.end_offset > self.listed_end or segment is self.segments[-1]:
                segment.save_index()
        self.uncheckpointed_bytes = 0
        epochs = None if self.lacks_archived_epochs else self.epochs.unwritten()
        return state_as_of(self, self.flushed_end, epochs)

    def checkpoint_written(self, state: LogState) -> None:
        """Record that the checkpoint of `state` is on disk: recovery will begin at its recovery point."""
        self.recovery_point = max(self.recovery_point, state.recovery_point)
        self.flushed_start = state.log_start
        self.listed_end = state.segments[-1].end_offset if state.segments else 0
        if state.epochs is not None:
            self.epochs.written(state.epochs)
        self.replaced.synced(state.new_names)
        active = self.segments[-1].aborted if self.segments else None
        for rows in state.aborted:
            rows.index.saved(rows.count, is_sealed=rows.index is not active)

    def mark_recovered(self, flushed_end: int, *, is_truncating: bool = False) -> None:
        """Finish recovery: sync everything that may not be on disk, so that all batches count as flushed.

        Also the truncation of a process that was killed in it, if the log `is_truncating` (disk rule 7).
        """
        has_more = bool(self.segments) and (flushed_end < self.log_end or flushed_end <= self.segments[-1].base_offset)
        if has_more or is_truncating:
            sync_again(self.segments, flushed_end)
            for directory in directories_to(self.directory):
                sync_directory(self.disk, directory)
        if self.segments:
            self._unsynced.may_lack_removals(self.directory)
        self.flushed_end = self.log_end

    def moved(self, directory: str, segments: list[Segment], unsynced: UnsyncedEntries) -> None:
        """Continue in another directory, with copies of the same segments there (`log_copy.py`)."""
        self.directory, self.segments, self._unsynced = directory, segments, unsynced
        self._replace_epochs(self.epochs)
        self._positions.clear()

    def close(self) -> None:
        """Flush and checkpoint everything, so that the next open has nothing to recover. Blocks on the disk.

        After an error it may be called again.
        """
        if self.segments:
            active = self.segments[-1]
            if not active.is_sealed:
                active.close_interval()
                active.seal()
                self._unsynced.wrote(active.path, active.file)
            pending = self.begin_flush()
            for syncable in (*pending.files, *pending.directories):
                syncable.sync()
            self.flushed(pending)
            active.save_index(sync=True)
            write_checkpoint(self.disk, self.directory, self.state())
        self.release()

    def release(self) -> None:
        """Close every descriptor, with no change on disk."""
        for segment in self.segments:
            segment.release()
        self._unsynced.clear()

    def _replace_epochs(self, epochs: LeaderEpochs) -> None:
        self.epochs = epochs
        for segment in self.segments:
            segment.epochs = epochs

    def _segment_for(self, size: int, max_timestamp: int, end: int) -> Segment:
        if self.has_unsynced_truncation or self.begins_anew:
            raise TruncationUnsynced("the log has a truncation that is not on disk yet")
        if not self.segments or self.must_roll or is_full(self.segments[-1], self.config, size, max_timestamp, end):
            self._roll()
        return self.segments[-1]

    def _roll(self) -> None:
        """Create a new segment at the log end offset. Its directory entries are synced with the next group commit.

        Raises OSError, after which the next append tries again.
        """
        # Until the new segment exists, no append may go to the old one, which may be sealed by then.
        self.must_roll = True
        if self.segments:
            full = self.segments[-1]
            if not full.is_sealed:
                full.close_interval()
                full.seal()
            changed: tuple[str, ...] = (self.directory,)
        else:
            self.disk.make_directories(self.directory)
            changed = directories_to(self.directory)
        file = SegmentFile(self.log_end, max(self.replaced.least_generation, int(self._has_gaps)))
        segment = Segment.create(self.disk, self.directory, file, self.config.index_interval_bytes, self.opened)
        segment.aborted.undecided = self.producers.transactions.first_undecided(self.log_end)
        segment.epochs = self.epochs
        self.segments.append(segment)
        self._unsynced.changed(*changed)
        self.must_roll = self._has_gaps = False

    def _expect_gaps(self) -> None:
        """Let a segment with a generation take the next batches: the loader expects no gaps in others."""
        self._has_gaps = True
        if self.segments and not self.segments[-1].generation:
            self.must_roll = True
            if not self.segments[-1].size and not self.segments[-1].is_sealed:
                self._remove(self.segments.pop())

    def _appended(
        self,
        segment: Segment,
        header: BatchHeader,
        base: int,
        end: int,
        leader_epoch: int,
        now_ms: int,
        marker: EndTransactionMarker | None,
    ) -> None:
        if (unsynced := self._unsynced.files) is None:
            unsynced = self._unsynced.files = {}
        unsynced[segment.path] = segment.file
        self.uncheckpointed_bytes += header.size
        self.epochs.assign(leader_epoch, base)
        if header.attributes & TRANSACTIONAL:
            record(self.producers, segment.aborted, header, base, end, now_ms, marker)
        elif header.producer_id >= 0:
            self.producers.appended(header, base, end, now_ms)
        self.log_end = end

    def _appended_all(
        self, segment: Segment, batches: Sequence[BatchHeader], size: int, now_ms: int, markers: Markers
    ) -> None:
        """Record batches of `size` bytes in the segment, each as `_appended` does."""
        first, epochs, producers = batches[0], self.epochs, self.producers
        base, end, latest = first.base_offset, first.end, first.leader_epoch
        self._appended(segment, first, base, end, latest, now_ms, markers.get(base))
        self.uncheckpointed_bytes += size - first.size
        for header in batches[1:]:
            base = header.base_offset
            end = base + header.last_offset_delta + 1
            if header.leader_epoch != latest:
                latest = header.leader_epoch
                epochs.assign(latest, base)
            if header.attributes & TRANSACTIONAL:
                record(producers, segment.aborted, header, base, end, now_ms, markers.get(base))
            elif header.producer_id >= 0:
                producers.appended(header, base, end, now_ms)
        self.log_end = end

    def _remove_replaced(self, end: int) -> None:
        """Remove the files of replaced segments that have offsets from `end` on, before a truncation."""
        self.truncations += 1
        for segment in self.replaced.truncated(self.segments, end):
            self._remove(segment)
            self.replaced.take([segment])

    def _remove(self, segment: Segment) -> None:
        self._unsynced.removed(segment.path)
        segment.truncations += 1
        segment.release()
        for path in filter(self.disk.exists, segment.paths()):
            (self.discard if path == segment.path else self.disk.remove)(path)
