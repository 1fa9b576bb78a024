"""Log recovery: opening a log after a stop, a kill or a power cut.

Segments below the recovery point are taken as they are, and verified when read. After the recovery point every batch is
checked. The first incomplete batch is either a torn write or damage. A torn write is truncated, because it was provably
never flushed. Damage is kept and skipped: its offsets are never given to other records (disk rule 4).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, zip_longest

from cordwood.storage.after_archive import lacking_producers
from cordwood.storage.batch import TRANSACTIONAL, BatchHeader, peek
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Disk, read_around, sync_directory
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import CorruptBatch, DamagedLog, ForeignSegment, LostTail, Unfinished
from cordwood.storage.flushed_offsets import FlushedOffset
from cordwood.storage.generations import counting
from cordwood.storage.log import Log
from cordwood.storage.manifest import UNKNOWN_TIMESTAMP, Layout, Manifest, SealedSegment, lay_out
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.recovery import Tear, has_hole, is_blank, must_follow, must_not_fall_back, scan, step_over
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile, files_of, loss_of, segment_path, strays_of
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE, ActiveSegment, load
from cordwood.storage.transaction_log import marker_of, record, restore_aborted
from cordwood.storage.types import NO_EPOCH
from cordwood.storage.unseen_batches import look_again

CLAIM_MAX = 1 << 24
"""Upper bound of records in a batch; a damaged header that claims more is ignored."""
DAMAGED_INTERVALS_MAX = 100
"""Damaged intervals after which the rest of a segment is not searched for leader epochs: each takes a read."""


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    mark: FlushedOffset | None,
    now_ms: int,
    opened: OpenSegments | None = None,
) -> Log:
    """Open and recover the log in `directory`; return an empty log if there is none. Blocks on the disk.

    `mark` is the log's last entry in `flushed_offsets.py`, None if unknown. `log.damage` has the damage found. On
    return everything in the log is on disk. Raises OSError, OutOfResources or DiskFailed if the disk cannot be read or
    written.
    """
    log = Log(disk, directory, config, opened)
    if not disk.exists(directory):
        if mark is not None and mark.end_offset:
            _continue_after(log, mark.end_offset)
    else:
        try:
            _recover(log, mark, now_ms)
        except BaseException:
            # The caller gets no log to release: its files would stay open.
            log.release()
            raise
    if log.lacks_archived_producers and not any(damage.path.endswith(RECOVERY_FILE) for damage in log.damage):
        log.damage.append(lacking_producers(log))
    return log


def _recover(log: Log, mark: FlushedOffset | None, now_ms: int) -> None:
    recovered = load(log.disk, log.directory)
    log.log_start, log.recovery_point = recovered.log_start, recovered.recovery_point
    log.producers, log.epochs, log.clean_end = recovered.producers, recovered.epochs, recovered.clean_end
    log.unseen = recovered.unseen
    names = log.disk.list_directory(log.directory)
    files = files_of(names)
    # Archive rule 2: archived records must not be taken for deleted ones. The next leader raises the log start offset
    # to where the archive begins.
    is_start_unknown = log.config.is_archived and recovered.is_lost
    # Epochs that begin above the recovery point may have been lost; the replay finds them again if they were not. It
    # finds none of those that only the archive has.
    if not is_start_unknown:
        log.epochs.truncate_end(log.recovery_point)
    elif files:
        log.epochs.truncate_end(files[0].base_offset)
    if recovered.local_start <= log.log_start and any(log.epochs):
        # A crash may have interrupted a checkpoint with a higher log start offset, after its epochs: they begin there
        # already.
        log.log_start = max(log.log_start, recovered.epochs_start)
    log.damage.extend(recovered.damage)
    opening = _Opening(log, mark, now_ms, recovered.active, recovered.flushed_end)
    opening.is_start_unknown, opening.is_lost = is_start_unknown, recovered.is_lost
    for stray in strays_of(names):
        log.disk.remove(f"{log.directory}/{stray}")
    opening.run(files, recovered.segments, max(log.log_start, recovered.local_start))
    if is_start_unknown:
        log.epochs.truncate_end(log.log_end)
    if log.log_start < log.local_start and not recovered.has_epochs:
        _note_lost_epochs(log, recovered.recovery_point)
    if is_start_unknown:
        log.lost_archived_producers()
    look_again(log)


def _note_lost_epochs(log: Log, recovery_point: int) -> None:
    """Note that leader epochs of archived records are lost, with those of the batches here below `recovery_point`."""
    _find_epochs(log, recovery_point)
    log.lacks_archived_epochs = True
    if not any(damage.path.endswith(EPOCHS_FILE) for damage in log.damage):
        log.damage.append(Unfinished(f"{log.directory}/{EPOCHS_FILE}", 0, "the file is missing"))


def _find_epochs(log: Log, end: int) -> None:
    """Find the leader epochs of the batches here below `end`. Damage to a batch is reported when it is read."""
    found = LeaderEpochs()
    for header in chain.from_iterable(map(_sound_headers, log.segments)):
        if header.base_offset < end:
            found.assign(header.leader_epoch, header.base_offset)
    log.restore_epochs(found, end)


def _sound_headers(segment: Segment) -> Iterator[BatchHeader]:
    """Yield the headers of a segment's batches, without those of damaged intervals."""
    start = 0
    # The outer one: without an index nothing tells where damage ends.
    with suppress(DamagedLog):
        for _ in range(DAMAGED_INTERVALS_MAX):
            try:
                for position, header in segment.headers(start, segment.size):
                    start = position + header.size
                    yield header
                return
            except DamagedLog:
                start = segment.piece_end(start, segment.size, 0)


def _remove(log: Log, file: SegmentFile) -> None:
    """Remove the files of a segment that is not part of the log."""
    interval = log.config.index_interval_bytes
    segment = Segment(log.disk, log.directory, file, interval, log.opened)
    for path in segment.paths():
        if log.disk.exists(path):
            log.disk.remove(path)


def _continue_after(log: Log, end: int) -> None:
    """Continue at `end` a log whose segments are all missing: their offsets stay in use."""
    log.damage.append(LostTail(log.directory, 0, f"all records below offset {end} are missing", 0))
    log.log_start = log.log_end = log.flushed_end = log.recovery_point = end
    if log.config.is_archived:
        # Archive rule 2: the archive may still have them.
        log.log_start, log.lacks_archived_epochs = 0, not any(log.epochs)
        log.lost_archived_producers()


def _move_aborted(former: Segment, lost: Segment) -> None:
    """Move the aborted transactions of lost markers, which a checkpoint has, to the segment of the lost offsets."""
    rows = [row for row in former.aborted.rows() if row.marker_offset >= lost.base_offset]
    if rows:
        former.aborted.truncate(lost.base_offset)
        lost.aborted.replace(rows)


class _Opening:
    def __init__(
        self, log: Log, mark: FlushedOffset | None, now_ms: int, active: ActiveSegment | None, flushed_end: int
    ) -> None:
        self._log, self._mark, self._now_ms, self._active = log, mark, now_ms, active
        self._without_aborted: Segment | None = None
        """The segment with the recovery point, if its aborted index is damaged."""
        self._flushed_end = max(mark.end_offset if mark else 0, flushed_end)
        self._replay_from = log.recovery_point
        self._lost_from: int | None = None
        """Offset from which on the end of the log is lost."""
        self.is_start_unknown = self.is_lost = False
        """Whether the log start offset is unknown: of an archived log, or of any."""

    def run(self, files: list[SegmentFile], manifest: Manifest | None, local_start: int) -> None:
        self._local_start = local_start
        if manifest is not None:
            layout = lay_out(manifest, files, local_start)
            self._take_listed(layout)
            files = list(layout.others)
        live, left_over = counting(self._log.disk, self._log.directory, files)
        for file in left_over:
            _remove(self._log, file)
        self._take(live)
        self._settle()

    def _take_listed(self, layout: Layout) -> None:
        """Add the segments of the manifest, and report those that are missing, too short or foreign."""
        log = self._log
        for row in layout.sealed:
            segment = Segment.listed(log.disk, log.directory, row, log.config.index_interval_bytes, log.opened)
            segment.epochs = log.epochs
            log.segments.append(segment)
            if (damage := loss_of(log.disk, segment.path, row.size, row.end_offset - row.base_offset)) is not None:
                segment.is_lost = not row.size or not log.disk.exists(segment.path)
                log.damage.append(damage)
            log.listed_end = row.end_offset
        if layout.gap is not None:
            # It begins with the segment of the recovery point.
            self._append_lost(*layout.gap, self._active)
        for file in layout.foreign:
            log.damage.append(ForeignSegment(segment_path(log.directory, *file)))
        for file in layout.removed:
            _remove(log, file)

    def _append_lost(self, base: int, end: int, known: ActiveSegment | None = None) -> None:
        """Add a segment of which only the offsets are known, and perhaps its transactions."""
        lost = self._reserve(base, end, known)
        self._damaged(lost.path, 0, f"the records from offset {base} to {end} are missing", base, end)

    def _reserve(self, base: int, end: int, known: ActiveSegment | None = None) -> Segment:
        """Add and return a segment of lost offsets: later checkpoints list it, and so each start reports the loss."""
        log = self._log
        former = log.segments[-1] if log.segments else None
        if known is None:
            # Markers in the lost records end transactions that were ongoing here, which the producers need not know.
            undecided = log.producers.transactions.first_undecided(base)
            known = ActiveSegment(undecided if former is None else min(undecided, former.aborted.undecided))
        row = SealedSegment(base, end, 0, UNKNOWN_TIMESTAMP, *known)
        lost = Segment.listed(log.disk, log.directory, row, log.config.index_interval_bytes, log.opened)
        lost.is_lost = True
        if former is not None and former.aborted.is_in_memory:
            _move_aborted(former, lost)
        if former is not None and former.base_offset == base:
            # A file without any batch. Another segment of the same name takes its place.
            log.segments.pop().release()
        log.segments.append(lost)
        return lost

    def _damaged(self, path: str, position: int, what: str, offset: int, end: int) -> None:
        """Record damage from `offset` to `end`. In the replayed part, everything after the damage is lost too.

        The producers and leader epochs of these batches are unknown, and so is their effect on later batches.
        """
        if end <= self._replay_from:
            self._log.damage.append(DamagedLog(path, position, what))
        else:
            self._lost(path, position, what, offset, end)

    def _lost(self, path: str, position: int, what: str, offset: int, end: int) -> None:
        log = self._log
        log.damage.append(LostTail(path, position, what, offset))
        log.has_not_seen(offset, end)

    def _take(self, files: Sequence[SegmentFile]) -> None:
        log = self._log
        interval = log.config.index_interval_bytes
        for file, following in zip_longest(files, [file.base_offset for file in files[1:]]):
            # Gaps in the offsets of a rewritten segment are no loss: without a row of the manifest, only its last batch
            # tells that its end is there.
            if following is not None and following <= log.recovery_point and not file.generation:
                log.segments.append(Segment.sealed(log.disk, log.directory, file, following, interval, log.opened))
                if following == log.recovery_point:
                    self._load_aborted(log.segments[-1])
                continue
            segment = Segment(log.disk, log.directory, file, interval, log.opened)
            log.segments.append(segment)
            self._load_aborted(segment)
            if not self._recover(segment, following):
                self._remove_after(segment, files)
                break
            if following is not None:
                segment.retire()
            if following is not None and segment.end_offset < following:
                self._append_lost(segment.end_offset, following)

    def _load_aborted(self, segment: Segment) -> None:
        """Load the aborted transactions below the recovery point; the replay finds the later ones."""
        index, point = segment.aborted, self._replay_from
        if segment.base_offset >= point:
            index.undecided = self._log.producers.transactions.first_undecided(segment.base_offset)
        elif self._active is not None and (damage := index.recovered(*self._active)) is not None:
            self._log.damage.append(damage)
            self._without_aborted = segment

    def _recover(self, segment: Segment, following: int | None) -> bool:
        """Add the batches of a segment. Return False if it was truncated: then no later segment may stay."""
        segment.resume(self._flushed_end)
        if segment.index.is_outdated:
            # Rows of removed batches must never be compared with the batches that replace them.
            segment.save_index(sync=True)
        self._replay(segment)
        while (tear := scan(segment, lambda header: self._check_batch(segment, header))) is not None:
            if tear.offset == following:
                # The segment has all its records: the rest is preallocated space whose removal at sealing was not
                # synced.
                segment.truncate(tear.position, tear.offset)
                return True
            if tear.offset >= self._flushed_end and has_hole(segment.file, tear.position):
                if following is None and is_blank(segment.file, tear.position):
                    # Preallocated and never written: appends continue here, and a truncation would cost a sync for each
                    # log.
                    return True
                # Everything after it is removed too, unread: stale bytes could later pass for the next batch. The
                # removal is synced: after another power cut the stale bytes would reappear where the new ones had not
                # arrived.
                segment.truncate(tear.position, tear.offset)
                segment.file.sync()
                return False
            if step_over(segment, tear):
                self._damaged(segment.path, tear.position, tear.what, tear.offset, segment.end_offset)
                continue
            self._keep_damaged_rest(segment, tear, following)
            break
        if (damage := segment.take_index_damage()) is not None:
            self._log.damage.append(damage)
        if following is not None and segment.end_offset < following:
            return self._is_gap_allowed(segment)
        return True

    def _is_gap_allowed(self, segment: Segment) -> bool:
        """Return whether records missing before the next segment are damage; truncate if they were never flushed."""
        if segment.end_offset >= self._flushed_end:
            segment.truncate(segment.size, segment.end_offset)
            return False
        return True

    def _keep_damaged_rest(self, segment: Segment, tear: Tear, following: int | None) -> None:
        """Record damage that no whole batch follows. Its offsets stay in use, and appends go to a new segment."""
        if following is not None:
            segment.note_damage(segment.file.size() - tear.position)
            segment.end_offset = following
            self._damaged(segment.path, tear.position, tear.what, tear.offset, following)
            return
        claimed = tear.offset + 1
        try:
            header = peek(read_around(segment.file, 1 << 10, tear.position))
        except CorruptBatch:
            header = None
        if header is not None and 0 < header.record_count == header.last_offset_delta + 1 < CLAIM_MAX:
            claimed = tear.offset + header.record_count
        segment.note_damage(segment.file.size() - tear.position)
        segment.end_offset = max(claimed, self._flushed_end)
        self._lost_from = tear.offset
        self._lost(segment.path, tear.position, tear.what, tear.offset, segment.end_offset)
        self._log.must_roll = True

    def _remove_after(self, segment: Segment, files: Sequence[SegmentFile]) -> None:
        """Remove the segments after a truncated torn write: they were never flushed either."""
        for file in files:
            if file.base_offset > segment.base_offset:
                _remove(self._log, file)
        sync_directory(self._log.disk, self._log.directory)

    def _replay(self, segment: Segment) -> None:
        """Add producers and epochs of the indexed batches after the recovery point."""
        if segment.end_offset <= self._replay_from:
            return
        index = segment.index
        row = max(index.row_of_offset(self._replay_from - segment.base_offset), 0)
        start = index.end_of_row(row - 1)
        while start < segment.size:
            try:
                for position, header in segment.headers(start, segment.size):
                    self._note(segment, position, header)
                    start = position + header.size
            except DamagedLog as damaged:
                # The batches after it are sound: if no other replica is, the log goes on with them.
                interval = index[index.row_of_position(start)]
                offset = segment.base_offset + interval.offset
                self._damaged(segment.path, interval.position, damaged.what, offset, segment.end_offset)
                start = interval.end

    def _check_batch(self, segment: Segment, header: BatchHeader) -> None:
        """Check offset and leader epoch, which the batch's checksum does not cover. Raises CorruptBatch."""
        due = segment.end_offset
        if segment.generation:
            must_not_fall_back(header, due)
            if due < self._flushed_end < header.end and due < header.base_offset:
                # A flush ends with a batch, and never within a gap.
                raise CorruptBatch(f"offset {header.base_offset}, but the batches up to {due} were not all")
        else:
            must_follow(header, due)
        known = self._log.epochs.epoch_at(header.base_offset)
        is_on_record = known != NO_EPOCH and header.base_offset < self._replay_from
        if header.leader_epoch < known or (header.leader_epoch > known and is_on_record):
            raise CorruptBatch(f"leader epoch {header.leader_epoch} instead of epoch {known}")
        mark = self._mark
        if mark is not None and mark.rules_out(header):
            raise CorruptBatch(f"leader epoch {header.leader_epoch} before epoch {mark.leader_epoch}")
        self._note(segment, segment.size, header)

    def _note(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if header.end <= self._replay_from:
            return
        self._log.uncheckpointed_bytes += header.size
        self._log.epochs.assign(header.leader_epoch, header.base_offset)
        producers, base, end = self._log.producers, header.base_offset, header.end
        if header.attributes & TRANSACTIONAL:
            marker = marker_of(segment, position, header)
            record(producers, segment.aborted, header, base, end, self._now_ms, marker)
        elif header.producer_id >= 0:
            producers.appended(header, base, end, self._now_ms)

    def _settle(self) -> None:
        """Set the log's ends, and sync the records past the flushed end: they count as flushed from now on."""
        log = self._log
        found = log.segments[-1].end_offset if log.segments else self._local_start
        log.log_end = max(found, log.log_start, self._flushed_end)
        if log.log_end > max(found, log.log_start):
            what = f"the records from offset {found} to {log.log_end} are missing"
            if log.segments:
                self._lost(log.segments[-1].path, log.segments[-1].size, what, found, log.log_end)
                self._lost_from = found
                self._reserve(found, log.log_end)
            elif self.is_lost:
                _continue_after(log, log.log_end)
            else:
                self._lost(log.directory, 0, what, found, log.log_end)
                self._lost_from = found
                self._reserve(found, log.log_end, self._active)
        log.must_roll |= log.log_end > found
        if log.segments:
            if self._local_start == log.log_start and not self.is_start_unknown:
                log.log_start = max(log.log_start, log.segments[0].base_offset)
            log.must_roll |= log.segments[-1].is_sealed
        log.flushed_start = log.log_start
        self._note_lost_epoch()
        if self._without_aborted is not None:
            restore_aborted(log, self._without_aborted, self._replay_from)
        log.mark_recovered(self._flushed_end, is_truncating=self._mark is not None and self._mark.is_truncating)

    def _note_lost_epoch(self) -> None:
        """Let the lost end have the leader epoch of its last record.

        Without it a follower that has these records would truncate them, and no replica could refetch them.
        """
        mark, epochs = self._mark, self._log.epochs
        if self._lost_from is not None and mark is not None and epochs.latest < mark.leader_epoch:
            first = max(self._lost_from, self._replay_from)
            if first < mark.end_offset:
                epochs.assign(mark.leader_epoch, first)
