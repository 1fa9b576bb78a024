"""Holding a log's files against what vouches for them, by fresh reads of the disk, beside the log's use.

`view_of` is taken where the log is changed; `prove` goes through it in a thread, a piece at a time; and what it found
is asked of `is_still_damaged` where the log is changed: it may have been truncated meanwhile, or old segments dropped.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from cordwood.storage import checkpoint
from cordwood.storage.batch import CODEC_MASK, peek
from cordwood.storage.budget import Budget, OverBudget
from cordwood.storage.decompression import whole_body
from cordwood.storage.disk import Bytes, Disk, File
from cordwood.storage.errors import CorruptBatch, DamagedLog, ForeignSegment, damage_of
from cordwood.storage.index import Index, Interval, load
from cordwood.storage.log import Log
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import bases_in, loss_of, segment_path
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE

PIECE_BYTES = 256 << 10
"""Proven at a time: the checksums of so much hold up the loop, where they share the interpreter, by a tenth of a ms."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as it was. `proofs` is None where the index file, which is whole then, is what vouches for it."""

    path: str
    index_path: str
    base_offset: int
    end_offset: int
    size: int
    proofs: Index | None
    cuts: int
    decoded_to: int
    """Batches from here on have not been unpacked yet."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What there was of a log to be proven: between `log_start` and the last segment, no other file belongs to it."""

    disk: Disk
    directory: str
    log_start: int
    checkpoints: tuple[str, str]
    segments: tuple[SegmentView, ...]


class IncompleteIndex(DamagedLog):
    """Nothing is wrong with what it has: a crash kept the rest from the disk."""


class Undecodable(NamedTuple):
    """A batch that is what was written, and whose compressed records no reader can unpack."""

    path: str
    position: int
    offset: int
    end_offset: int
    why: str


class Unpacked(NamedTuple):
    """Every batch of a segment up to byte `position` has been tried, if the segment has not been cut since."""

    path: str
    position: int
    cuts: int


Proof = int | DamagedLog | Undecodable | Unpacked
"""Bytes that have been read, or what was found in them."""


def view_of(log: Log) -> LogView:
    """All of a log as it is now. Cheap: of the active segment the index is copied, 24 bytes for each 4 KiB."""
    segments = tuple(map(_segment_view, log.segments))
    return LogView(log.disk, log.directory, log.log_start, _checkpoints(log), segments)


def prove(view: LogView) -> Iterator[Proof]:
    """Read everything, in pieces of about PIECE_BYTES. Waits for the disk. Of each segment the first damage counts."""
    for path in view.checkpoints:
        yield from _prove_checkpoint(view.disk, path)
    yield from _foreign_segments(view)
    for segment in view.segments:
        if segment.proofs is None and (loss := loss_of(view.disk, segment.path, segment.size)) is not None:
            yield loss
            continue
        index, damage = _index_of(view.disk, segment)
        yield index.size
        if damage is not None:
            yield damage
        yield from _prove_batches(view.disk, segment, segment.proofs or index)


def is_still_damaged(log: Log, damage: DamagedLog) -> bool:
    """Whether what was found is there when looked at once more. Waits for the disk: for one interval or small file."""
    if damage.path in _checkpoints(log):
        return any(isinstance(proof, DamagedLog) for proof in _prove_checkpoint(log.disk, damage.path))
    segment = segment_with(log, damage.path)
    if segment is None:
        # It was truncated or dropped, and with it what was wrong in it.
        return isinstance(damage, ForeignSegment) and log.disk.exists(damage.path)
    view = _segment_view(segment)
    if view.proofs is None and loss_of(log.disk, view.path, view.size) is not None:
        return damage.path == view.path
    index, index_damage = _index_of(log.disk, view)
    if damage.path == view.index_path:
        return index_damage is not None
    proofs = view.proofs or index
    row = min(proofs.row_of_position(damage.position), len(proofs) - 1)
    suspected = proofs.rows(row, row + 1)
    return any(isinstance(proof, DamagedLog) for proof in _prove_batches(log.disk, view, suspected))


def segment_with(log: Log, path: str) -> Segment | None:
    """The segment that a file belongs to; None where the log has none such."""
    return next((segment for segment in log.segments if path in segment.paths()), None)


def _checkpoints(log: Log) -> tuple[str, str]:
    return f"{log.directory}/{RECOVERY_FILE}", f"{log.directory}/{EPOCHS_FILE}"


def _segment_view(segment: Segment) -> SegmentView:
    proofs = None if segment.is_sealed else segment.proofs()
    ends = segment.base_offset, segment.end_offset
    tried = segment.cuts, segment.decoded_to
    return SegmentView(segment.path, segment.index_path, *ends, segment.size, proofs, *tried)


def unpacked(log: Log, tried: Unpacked) -> None:
    """Note what has been tried, so that nothing is tried again, nor found again, in the next pass."""
    segment = segment_with(log, tried.path)
    if segment is not None and segment.cuts == tried.cuts:
        segment.decoded_to = max(segment.decoded_to, tried.position)


def _foreign_segments(view: LogView) -> Iterator[DamagedLog]:
    """Files among the segments that are none of them. What begins before or behind these is being removed, or new."""
    known = {segment.base_offset for segment in view.segments}
    for base in bases_in(view.disk, view.directory):
        if base not in known and view.log_start <= base < max(known):
            yield ForeignSegment(segment_path(view.directory, base))


def _index_of(disk: Disk, segment: SegmentView) -> tuple[Index, DamagedLog | None]:
    """What the index file has, and what is wrong with it."""
    path = segment.index_path
    try:
        with closing(disk.open(path)) as file:
            index, damage = load(file, segment.base_offset)
    except FileNotFoundError:
        return Index(), None if segment.proofs is not None else DamagedLog(path, 0, "it is gone")
    except OSError as error:
        return Index(), damage_of(error, path, 0)
    if damage is None and segment.proofs is None and index.end != segment.size:
        damage = IncompleteIndex(path, 0, f"it covers {index.end} bytes of a segment that has {segment.size}")
    return index, damage


def _prove_batches(disk: Disk, segment: SegmentView, proofs: Index) -> Iterator[Proof]:
    """Every interval of a segment against its checksum, up to the first that is not what was written."""
    if not len(proofs):
        return
    path = segment.path
    try:
        file = disk.open(path)
    except FileNotFoundError:
        yield DamagedLog(path, 0, "it is missing")
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
                    what = "not what was written" if content is not None else "what the disk cannot read"
                    yield DamagedLog(path, interval.position, f"the {interval.size} bytes from here on are {what}")
                    return
                if interval.position >= segment.decoded_to:
                    yield from _undecodable(path, interval.position, content)
            if intervals[-1].end > segment.decoded_to:
                yield Unpacked(path, intervals[-1].end, segment.cuts)
        if segment.proofs is None and intervals[-1].end == segment.size:
            yield from _prove_end(segment, intervals[-1], data[-1])


def read_each(file: File, intervals: list[Interval]) -> list[Bytes | None]:
    """The bytes of each interval; None of those that the disk cannot read."""
    begin, size = intervals[0].position, intervals[-1].end - intervals[0].position
    try:
        data = memoryview(file.pread(size, begin))
    except OSError as error:
        # Raises where the failure says nothing of the bytes.
        damage_of(error, file.path, begin)
        return [None] if len(intervals) == 1 else [read_each(file, [interval])[0] for interval in intervals]
    return [data[interval.position - begin : interval.end - begin] for interval in intervals]


def _undecodable(path: str, position: int, content: Bytes) -> Iterator[Undecodable]:
    """The batches of an interval that cannot be unpacked. One that is only too large for us is none of them."""
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


def _prove_end(segment: SegmentView, last: Interval, content: Bytes | None) -> Iterator[DamagedLog]:
    """Whether the segment reaches as far as the next one, of which its own file says nothing."""
    assert content is not None, "it is proven"
    position, end = 0, segment.base_offset + last.offset
    while position < last.size:
        header = peek(content, position)
        position, end = position + header.size, header.end
    if end != segment.end_offset:
        what = f"the records from offset {end} to {segment.end_offset} are missing"
        yield DamagedLog(segment.path, segment.size, what)


def pieces(proofs: Index) -> Iterator[list[Interval]]:
    """The intervals, as many at a time as make about PIECE_BYTES."""
    piece: list[Interval] = []
    for interval in proofs:
        if piece and interval.end - piece[0].position > PIECE_BYTES:
            yield piece
            piece = []
        piece.append(interval)
    yield piece


def _prove_checkpoint(disk: Disk, path: str) -> Iterator[Proof]:
    try:
        yield len(checkpoint.read(disk, path) or b"")
    except DamagedLog as damage:
        yield damage
