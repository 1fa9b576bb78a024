"""Restoration of one partition's log from the archive: the files that a broker leaves after a clean stop.

All segments are sealed, the recovery point is the log's end, and the bytes of every batch are those in the store. After
a crash the restoration is repeated: complete files are not downloaded again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple
from uuid import UUID

from crc32c import crc32c

from cordwood.archive import layout
from cordwood.archive.commits import Chain
from cordwood.archive.manifest import ArchivedSegment
from cordwood.archive.segment_state import DamagedState, SegmentState, decode, rebuilt
from cordwood.archive.store import ObjectMissing, ObjectStore
from cordwood.storage.batch import peek
from cordwood.storage.disk import Bytes, Disk, File, sync_directory
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import DamagedLog
from cordwood.storage.index import Index, Interval
from cordwood.storage.manifest import SealedSegment
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.producers import FIRST_OF_ONE_BATCH, Producers
from cordwood.storage.segment import Segment
from cordwood.storage.state import ActiveSegment, LogState, state_of_new_log, write_checkpoint

PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
INTERVAL_BYTES = 4096

RunBlocking = Callable[..., Awaitable[Any]]


class Place(NamedTuple):
    """A partition in the archive of a cluster."""

    cluster_id: str
    topic_id: UUID
    partition: int


class Loss(NamedTuple):
    """Records that cannot be restored, or an object that was restored without another one."""

    start: int
    end: int
    what: str


class RestoredLog(NamedTuple):
    """What was restored. The files have the records from `local_start` on; the archive alone has those before."""

    log_start: int
    local_start: int
    end: int
    size: int
    leader_epoch: int
    """Of the last batch; -1 without records."""
    next_producer_id: int
    """No producer of the log has this id or a higher one."""
    losses: tuple[Loss, ...]


class LocalLimits(NamedTuple):
    """How much of the log is written to the disks, at least its last segment. None: everything."""

    from_ms: int | None = None
    """Segments whose newest record is older are left in the archive."""
    size: int | None = None
    """Size in bytes of the segments that are kept."""


class _Piece(NamedTuple):
    """A segment as it is restored, and its state. It begins at `start`, byte `position` of the object."""

    archived: ArchivedSegment
    state: SegmentState
    start: int
    position: int
    intervals: list[Interval]

    def row(self) -> SealedSegment:
        size = self.archived.size - self.position
        aborted = sum(row.marker_offset >= self.start for row in self.state.aborted)
        generation = int(self.archived.is_clean)
        times = max((one.max_timestamp for one in self.intervals), default=-1)
        return SealedSegment(
            self.start, self.archived.end_offset, size, times, self.state.undecided, aborted, generation
        )


async def restore_log(
    store: ObjectStore,
    place: Place,
    chain: Chain,
    disk: Disk,
    directories: Sequence[str],
    limits: LocalLimits,
    run_blocking: RunBlocking,
) -> RestoredLog:
    """Write a partition's log into each of these directories. Durable on return.

    Segments whose objects are missing or damaged are left out: a broker reports their range as lost, and serves the
    records before and after it. `run_blocking` runs what blocks on the disk. Raises StoreUnavailable, OSError.
    """
    segments, end = chain.archive.segments, max(chain.end, chain.archive.log_start)
    for directory in directories:
        make_directories(disk, directory, levels=4)
    if not segments:
        for directory in directories:
            await run_blocking(write_checkpoint, disk, directory, state_of_new_log(end))
        return RestoredLog(end, end, end, 0, -1, 0, ())
    local = segments[_first_local(segments, limits) :]
    rows, losses, last = list[SealedSegment](), list[Loss](), _assumed(segments[: -len(local)])
    for segment in local:
        restoring = _Restoring(store, place, segment, disk, directories, run_blocking)
        row, state = await restoring.run(last, losses)
        rows.append(row)
        last = state or last
    # DeleteRecords may have left a part of the first segment.
    log_start, end = max(segments[0].start_offset, chain.archive.log_start), segments[-1].end_offset
    producers, epochs = last.producers, last.epochs
    epochs.truncate_start(log_start)
    for directory in directories:
        checkpoint = LogState(
            log_start,
            end,
            producers.snapshot(end),
            epochs.encode(),
            tuple(rows),
            ActiveSegment(rows[-1].undecided, rows[-1].aborted),
            (),
            rows[0].base_offset,
            _clean_end(segments),
        )
        await run_blocking(write_checkpoint, disk, directory, checkpoint)
    ids = [producer_id for producer_id, _ in producers if producer_id < FIRST_OF_ONE_BATCH]
    latest, size = max(epochs.latest, segments[-1].leader_epoch), sum(row.size for row in rows)
    return RestoredLog(log_start, rows[0].base_offset, end, size, latest, max(ids, default=-1) + 1, tuple(losses))


def make_directories(disk: Disk, path: str, levels: int) -> None:
    """Make directories, and sync the entries of the last `levels`: an attempt that crashed may have made them.

    Blocks.
    """
    disk.make_directories(path)
    for _ in range(levels):
        path = path.rpartition("/")[0]
        sync_directory(disk, path or "/")


def _first_local(segments: Sequence[ArchivedSegment], limits: LocalLimits) -> int:
    """Return the index of the first segment that is written to the disks."""
    size, first = 0, len(segments)
    while first > 0:
        segment = segments[first - 1]
        size += segment.size
        is_old = limits.from_ms is not None and 0 <= segment.max_timestamp < limits.from_ms
        if first < len(segments) and (is_old or (limits.size is not None and size > limits.size)):
            break
        first -= 1
    return first


def _assumed(segments: Sequence[ArchivedSegment]) -> SegmentState:
    """Return what is known without the state objects of these segments, the ones before those on the disks.

    It counts only where the state object of a segment on the disks is lost.
    """
    epochs = LeaderEpochs()
    for segment in segments:
        epochs.assign(segment.leader_epoch, segment.start_offset)
    start, end = (segments[0].base_offset, segments[-1].end_offset) if segments else (0, 0)
    return SegmentState(start, end, start, -1, b"", epochs.encode(), Producers().snapshot(end).encode(), b"")


def _clean_end(segments: Sequence[ArchivedSegment]) -> int:
    """Return the end of the records that the log cleaner had compacted."""
    end = 0
    for segment in segments:
        if not segment.is_clean:
            break
        end = segment.end_offset
    return end


class _Damaged(Exception):
    """An object is missing, or differs from what was written."""


class _Restoring:
    """One segment that is restored into several directories."""

    def __init__(
        self,
        store: ObjectStore,
        place: Place,
        segment: ArchivedSegment,
        disk: Disk,
        directories: Sequence[str],
        run_blocking: RunBlocking,
    ) -> None:
        self._store, self._segment, self._disk, self._directories = store, segment, disk, directories
        self._run_blocking = run_blocking
        self._log_name, self._state_name = layout.segment_names(*place, segment)

    async def run(self, before: SegmentState, losses: list[Loss]) -> tuple[SealedSegment, SegmentState | None]:
        """Write the segment's files. Return its row of the manifest, and its state if that is known."""
        segment, state = self._segment, None
        lost = SealedSegment(segment.start_offset, segment.end_offset, segment.size, segment.max_timestamp, 0)
        try:
            state = await self._state()
        except _Damaged as damaged:
            if segment.start_offset == segment.base_offset:
                return await self._without_state(str(damaged), before, losses, lost)
            losses.append(Loss(segment.start_offset, segment.end_offset, str(damaged)))
            return lost._replace(undecided=segment.start_offset), None
        try:
            piece = await self._piece(state)
            await self._download(piece)
        except _Damaged as damaged:
            losses.append(Loss(segment.start_offset, segment.end_offset, str(damaged)))
            return lost._replace(undecided=state.undecided), state
        for directory in self._directories:
            await self._run_blocking(self._write_indexes, directory, piece)
        return piece.row(), state

    async def _without_state(
        self, why: str, before: SegmentState, losses: list[Loss], lost: SealedSegment
    ) -> tuple[SealedSegment, SegmentState | None]:
        """Restore a segment whose state object is lost, with a state from its batches."""
        segment = self._segment
        empty = SegmentState(segment.base_offset, segment.end_offset, segment.base_offset, -1, b"", b"", b"", b"")
        piece = _Piece(segment, empty, segment.base_offset, 0, [])
        try:
            await self._download(piece)
            row = piece.row()
            local = Segment.listed(self._disk, self._directories[0], row, INTERVAL_BYTES, OpenSegments())
            state = await self._run_blocking(rebuilt, local, before)
        except (_Damaged, DamagedLog) as damaged:
            losses.append(Loss(segment.start_offset, segment.end_offset, str(damaged)))
            return lost._replace(undecided=segment.base_offset), None
        losses.append(Loss(segment.end_offset, segment.end_offset, f"{why}: rebuilt from the batches"))
        piece = piece._replace(state=state, intervals=state.intervals)
        for directory in self._directories:
            await self._run_blocking(self._write_indexes, directory, piece)
        return piece.row(), state

    async def _state(self) -> SegmentState:
        segment = self._segment
        try:
            content = await self._store.get(self._state_name)
        except ObjectMissing as missing:
            raise _Damaged(str(missing)) from None
        if len(content) != segment.state_size or crc32c(content) != segment.state_crc:
            raise _Damaged(f"{self._state_name} differs from what was written")
        try:
            state = decode(content)
        except DamagedState as damaged:
            raise _Damaged(f"{self._state_name}: {damaged}") from None
        ends = state.base_offset, state.end_offset, state.intervals[-1].end if state.intervals else 0
        if ends != (segment.base_offset, segment.end_offset, segment.size):
            raise _Damaged(f"{self._state_name} belongs to another segment")
        return state

    async def _piece(self, state: SegmentState) -> _Piece:
        """Return the part of the segment from its start offset on: the batches before are in the segment before."""
        segment, intervals = self._segment, state.intervals
        start = segment.start_offset
        if start == segment.base_offset:
            return _Piece(segment, state, start, 0, intervals)
        row = max(at for at, one in enumerate(intervals) if segment.base_offset + one.offset <= start)
        first = intervals[row]
        try:
            content = await self._store.get_range(self._log_name, first.position, first.end)
        except ObjectMissing as missing:
            raise _Damaged(str(missing)) from None
        if crc32c(content) != first.crc:
            raise _Damaged(f"{self._log_name} differs from what was written")
        at = 0
        while at < len(content) and peek(content, at).base_offset < start:
            header = peek(content, at)
            if header.end > start:
                raise _Damaged(f"{self._log_name} has offset {start} within a batch that begins before it")
            at += header.size
        kept = intervals[row + 1 :]
        if at < len(content):
            rest = content[at:]
            kept.insert(0, Interval(0, first.position + at, len(rest), crc32c(rest), _max_timestamp(rest)))
        position = kept[0].position
        moved = [
            one._replace(offset=max(one.offset + segment.base_offset - start, 0), position=one.position - position)
            for one in kept
        ]
        moved[0] = moved[0]._replace(offset=0)
        return _Piece(segment, state, start, position, moved)

    async def _download(self, piece: _Piece) -> None:
        """Write the batches to all directories, unless they are there. Raises _Damaged."""
        paths = [self._local(directory, piece).path for directory in self._directories]
        size = piece.archived.size - piece.position
        if piece.position == 0 and all([await self._run_blocking(self._has, path, size) for path in paths]):
            # `_write_indexes` syncs their directory.
            return
        with ExitStack() as opened:
            files = [opened.enter_context(closing(self._disk.open(path, create=True))) for path in paths]
            for file in files:
                file.truncate(0)
            is_sound = await self._copy(files, piece.position)
            for file in files:
                await self._run_blocking(file.sync)
        if not is_sound:
            for path in paths:
                self._disk.remove(path)
            raise _Damaged(f"{self._log_name} is missing, or differs from what was written")
        for directory in self._directories:
            sync_directory(self._disk, directory)

    async def _copy(self, files: Sequence[File], skipped: int) -> bool:
        """Write the object, but its first bytes, to the files. Return whether its checksum is that of the upload."""
        size, crc = self._segment.size, 0
        for first in range(0, size, PIECE_BYTES * PIECES_AT_ONCE):
            starts = range(first, min(first + PIECE_BYTES * PIECES_AT_ONCE, size), PIECE_BYTES)
            ranges = [self._store.get_range(self._log_name, at, min(at + PIECE_BYTES, size)) for at in starts]
            try:
                contents = await asyncio.gather(*ranges)
            except ObjectMissing:
                # Or it ends too soon.
                return False
            for at, content in zip(starts, contents, strict=True):
                crc = await self._run_blocking(_write, files, content, at, skipped, crc)
        return crc == self._segment.crc

    def _has(self, path: str, size: int) -> bool:
        """Return whether the file is complete. Then it is on disk, too. Blocks."""
        if not self._disk.exists(path):
            return False
        crc = 0
        with closing(self._disk.open(path)) as file:
            if file.size() != size:
                return False
            for at in range(0, size, PIECE_BYTES):
                crc = crc32c(file.pread(min(PIECE_BYTES, size - at), at), crc)
            file.sync()
        return crc == self._segment.crc

    def _local(self, directory: str, piece: _Piece) -> Segment:
        return Segment.listed(self._disk, directory, piece.row(), INTERVAL_BYTES, OpenSegments())

    def _write_indexes(self, directory: str, piece: _Piece) -> None:
        """Write the index and the aborted index. Blocks."""
        local = self._local(directory, piece)
        with closing(self._disk.open(local.index_path, create=True)) as file:
            file.truncate(0)
            Index.of(piece.intervals).save(file, piece.start)
            file.sync()
        local.aborted.replace(row for row in piece.state.aborted if row.marker_offset >= piece.start)
        unsaved = local.aborted.unsaved(piece.archived.end_offset)
        if unsaved is not None:
            unsaved.write(self._disk)
        sync_directory(self._disk, directory)


def _write(files: Sequence[File], content: bytes, position: int, skipped: int, crc: int) -> int:
    """Write a piece of an object to all files, which have it without its first `skipped` bytes. Blocks."""
    kept = memoryview(content)[max(skipped - position, 0) :]
    for file in files:
        if kept:
            file.pwrite([kept], max(position - skipped, 0))
    return crc32c(content, crc)


def _max_timestamp(batches: Bytes) -> int:
    at, latest = 0, -1
    while at < len(batches):
        header = peek(batches, at)
        latest, at = max(latest, header.max_timestamp), at + header.size
    return latest
