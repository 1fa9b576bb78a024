"""Scrub of a log: its files are read from the disk and verified against their checksums, while the log is in use.

`view_of` runs where the log is changed. `verify` verifies the view in a thread, a piece at a time. `is_still_damaged`
checks a finding again where the log is changed: the log may have been truncated meanwhile, or old segments dropped.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage import checkpoint
from cordwood.storage.aborted_index import AbortedIndex
from cordwood.storage.batch import CODEC_MASK, end_of, peek
from cordwood.storage.budget import Budget, OverBudget
from cordwood.storage.decompression import whole_body
from cordwood.storage.disk import Bytes, Disk, File
from cordwood.storage.errors import CorruptBatch, DamagedLog, ForeignSegment, Unfinished, damage_of
from cordwood.storage.index import Index, Interval, load
from cordwood.storage.log import Log
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import files_in, loss_of, segment_path
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE

PIECE_BYTES = 256 << 10
"""Verified at a time: the checksums delay the event loop, which shares the interpreter, by a tenth of a ms."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Snapshot of one segment. `proofs` is None if the index file, which is complete then, has the checksums."""

    path: str
    index_path: str
    base_offset: int
    end_offset: int
    size: int
    proofs: Index | None
    truncations: int
    decoded_to: int
    """Byte from which on batches have not been decompressed yet."""
    aborted: AbortedIndex
    """Not a snapshot: its file only grows, except before a truncation."""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class LogView:
    """Snapshot of a log. From `local_start` to the last segment, no other segment file belongs to the log."""

    disk: Disk
    directory: str
    local_start: int
    checkpoints: tuple[str, str]
    segments: tuple[SegmentView, ...]


class Undecodable(NamedTuple):
    """A batch that is what was written, and whose compressed records no reader can decompress."""

    path: str
    position: int
    offset: int
    end_offset: int
    reason: str


class Unpacked(NamedTuple):
    """Progress: every batch up to byte `position` was tried, if the segment has not been truncated since."""

    path: str
    position: int
    truncations: int


Proof = int | DamagedLog | Undecodable | Unpacked
"""Count of bytes read, or a finding in them."""


def view_of(log: Log) -> LogView:
    """Return a snapshot of the log. Cheap: only the active segment's index is copied, 24 bytes for each 4 KiB."""
    segments = tuple(map(_segment_view, log.segments))
    return LogView(log.disk, log.directory, log.local_start, _checkpoints(log), segments)


def verify(view: LogView) -> Iterator[Proof]:
    """Verify all files, in pieces of about PIECE_BYTES. Blocks on the disk. Yields the first damage of each segment."""
    for path in view.checkpoints:
        yield from _verify_checkpoint(view.disk, path)
    yield from _foreign_segments(view)
    for segment in view.segments:
        if segment.end_offset > view.local_start and (loss := _loss_of(view.disk, segment)) is not None:
            yield loss
            continue
        index, damage = _index_of(view.disk, segment)
        yield index.size
        if damage is not None:
            yield damage
        yield from _verify_batches(view.disk, segment, segment.proofs or index)
        if (aborted_damage := segment.aborted.damage()) is not None:
            yield aborted_damage


def is_still_damaged(log: Log, damage: DamagedLog) -> bool:
    """Return whether a second look finds the damage too. Blocks on the disk, for one interval or small file."""
    if damage.path in _checkpoints(log):
        return any(isinstance(proof, DamagedLog) for proof in _verify_checkpoint(log.disk, damage.path))
    segment = segment_with(log, damage.path)
    if segment is None:
        # The segment was truncated or dropped, and the damage with it.
        return isinstance(damage, ForeignSegment) and log.disk.exists(damage.path)
    if damage.path == segment.aborted.path:
        return segment.aborted.damage() is not None
    view = _segment_view(segment)
    if _loss_of(log.disk, view) is not None:
        return damage.path == view.path
    index, index_damage = _index_of(log.disk, view)
    if damage.path == view.index_path:
        return index_damage is not None
    proofs = view.proofs or index
    row = min(proofs.row_of_position(damage.position), len(proofs) - 1)
    suspected = proofs.rows(row, row + 1)
    return any(isinstance(proof, DamagedLog) for proof in _verify_batches(log.disk, view, suspected))


def segment_with(log: Log, path: str) -> Segment | None:
    """Return the segment that a file belongs to; None if the log has none such."""
    return next((segment for segment in log.segments if path in segment.paths()), None)


def _checkpoints(log: Log) -> tuple[str, str]:
    return f"{log.directory}/{RECOVERY_FILE}", f"{log.directory}/{EPOCHS_FILE}"


def _segment_view(segment: Segment) -> SegmentView:
    proofs = None if segment.is_sealed else segment.proofs()
    ends = segment.base_offset, segment.end_offset
    tried = segment.truncations, segment.decoded_to
    return SegmentView(
        segment.path, segment.index_path, *ends, segment.size, proofs, *tried, segment.aborted, segment.generation
    )


def unpacked(log: Log, tried: Unpacked) -> None:
    """Record which batches were tried, so that the next pass neither tries nor reports them again."""
    segment = segment_with(log, tried.path)
    if segment is not None and segment.truncations == tried.truncations:
        segment.decoded_to = max(segment.decoded_to, tried.position)


def _loss_of(disk: Disk, segment: SegmentView) -> DamagedLog | None:
    """Return the damage of a sealed segment whose file is missing or too short; otherwise None."""
    if segment.proofs is not None:
        return None
    return loss_of(disk, segment.path, segment.size, segment.end_offset - segment.base_offset)


def _foreign_segments(view: LogView) -> Iterator[DamagedLog]:
    """Yield segment files that are not part of the log. Files before or after its segments are being removed or new.

    So are files of another generation than the segment that covers them: the log cleaner has replaced them.
    """
    for file in files_in(view.disk, view.directory):
        place = bisect_right(view.segments, file.base_offset, key=lambda segment: segment.base_offset) - 1
        path = segment_path(view.directory, *file)
        is_within = view.local_start <= file.base_offset and 0 <= place < len(view.segments) - 1
        if is_within and view.segments[place].generation == file.generation and view.segments[place].path != path:
            yield ForeignSegment(path)


def _index_of(disk: Disk, segment: SegmentView) -> tuple[Index, DamagedLog | None]:
    """Return the content of the index file, and the damage in it."""
    path = segment.index_path
    try:
        with closing(disk.open(path)) as file:
            index, damage = load(file, segment.base_offset)
    except FileNotFoundError:
        return Index(), None if segment.proofs is not None else DamagedLog(path, 0, "the file is missing")
    except OSError as error:
        return Index(), damage_of(error, path, 0)
    if damage is None and segment.proofs is None and index.end != segment.size:
        damage = Unfinished(path, 0, f"the index covers {index.end} bytes, but the segment has {segment.size}")
    return index, damage


def _verify_batches(disk: Disk, segment: SegmentView, proofs: Index) -> Iterator[Proof]:
    """Verify every interval of a segment, up to the first damaged one."""
    if not len(proofs):
        return
    path = segment.path
    try:
        file = disk.open(path)
    except FileNotFoundError:
        yield DamagedLog(path, 0, "the file is missing")
        return
    except OSError as error:
        yield damage_of(error, path, 0)
        return
    with closing(file):
        for intervals in pieces(proofs):
            yield intervals[-1].end - intervals[0].position
            data = read_each(file, intervals)
            for interval, content in zip(intervals, data, strict=True):
                if content is None or crc32c(content) != interval.crc:
                    what = "not what was written" if content is not None else "unreadable"
                    yield DamagedLog(
                        path, interval.position, f"the {interval.size} bytes from this position on are {what}"
                    )
                    return
                if interval.position >= segment.decoded_to:
                    yield from _undecodable(path, interval.position, content)
            if intervals[-1].end > segment.decoded_to:
                yield Unpacked(path, intervals[-1].end, segment.truncations)
        if segment.proofs is None and intervals[-1].end == segment.size:
            yield from _verify_end(segment, data[-1])


def read_each(file: File, intervals: list[Interval]) -> list[Bytes | None]:
    """Return the bytes of each interval; None for those that the disk cannot read.

    Raises OutOfResources, DiskFailed.
    """
    begin, size = intervals[0].position, intervals[-1].end - intervals[0].position
    try:
        data = memoryview(file.pread(size, begin))
    except OSError as error:
        # Raises if the error is no damage.
        damage_of(error, file.path, begin)
        return [None] if len(intervals) == 1 else [read_each(file, [interval])[0] for interval in intervals]
    return [data[interval.position - begin : interval.end - begin] for interval in intervals]


def _undecodable(path: str, position: int, content: Bytes) -> Iterator[Undecodable]:
    """Yield the batches of an interval that cannot be decompressed, except those that are only over budget."""
    at = 0
    while at < len(content):
        header = peek(content, at)
        if header.attributes & CODEC_MASK:
            try:
                whole_body(memoryview(content)[at : at + header.size], header, Budget())
            except OverBudget:
                pass
            except CorruptBatch as corrupt:
                yield Undecodable(path, position + at, header.base_offset, header.end, str(corrupt))
        at += header.size


def _verify_end(segment: SegmentView, content: Bytes | None) -> Iterator[DamagedLog]:
    """Check that the segment reaches the next one: its own file does not have that offset."""
    assert content is not None, "it is proven"
    end = end_of(content)
    if end != segment.end_offset:
        what = f"the records from offset {end} to {segment.end_offset} are missing"
        yield DamagedLog(segment.path, segment.size, what)


def pieces(proofs: Index) -> Iterator[list[Interval]]:
    """Yield the intervals, as many at a time as make about PIECE_BYTES."""
    piece: list[Interval] = []
    for interval in proofs:
        if piece and interval.end - piece[0].position > PIECE_BYTES:
            yield piece
            piece = []
        piece.append(interval)
    yield piece


def _verify_checkpoint(disk: Disk, path: str) -> Iterator[Proof]:
    try:
        yield len(checkpoint.read(disk, path) or b"")
    except DamagedLog as damage:
        yield damage
