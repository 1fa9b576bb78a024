"""Holding a log's files against what vouches for them, by fresh reads of the disk, beside the log's use.

`view_of` is taken where the log is changed; `prove` goes through it in a thread, a piece at a time; and what it found
is asked of `is_still_damaged` where the log is changed: it may have been truncated meanwhile, or old segments dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk
from cordwood.storage.errors import DamagedLog
from cordwood.storage.index import Index, Interval, load
from cordwood.storage.log import Log
from cordwood.storage.segment import Segment
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE

PIECE_BYTES = 256 << 10
"""Proven at a time: the checksums of so much hold up the loop, where they share the interpreter, by a tenth of a ms."""


@dataclass(frozen=True, slots=True)
class SegmentView:
    """One segment as it was. `proofs` is None where the index file, which is whole then, is what vouches for it."""

    path: str
    index_path: str
    base_offset: int
    size: int
    proofs: Index | None


@dataclass(frozen=True, slots=True)
class LogView:
    """What there was of a log to be proven."""

    disk: Disk
    checkpoints: tuple[str, str]
    segments: tuple[SegmentView, ...]


class IncompleteIndex(DamagedLog):
    """Nothing is wrong with what it has: a crash kept the rest from the disk."""


Proof = int | DamagedLog
"""Bytes that have been read, or what was found in them."""


def view_of(log: Log) -> LogView:
    """All of a log as it is now. Cheap: of the active segment the index is copied, 24 bytes for each 4 KiB."""
    return LogView(log.disk, _checkpoints(log), tuple(map(_segment_view, log.segments)))


def prove(view: LogView) -> Iterator[Proof]:
    """Read everything, in pieces of about PIECE_BYTES. Waits for the disk. Of each segment the first damage counts."""
    for path in view.checkpoints:
        yield from _prove_checkpoint(view.disk, path)
    for segment in view.segments:
        index, damage = _index_of(view.disk, segment)
        yield index.size
        if damage is not None:
            yield damage
        yield from _prove_batches(view.disk, segment.path, segment.proofs or index)


def is_still_damaged(log: Log, damage: DamagedLog) -> bool:
    """Whether what was found is there when looked at once more. Waits for the disk: for one interval or small file."""
    if damage.path in _checkpoints(log):
        return any(isinstance(proof, DamagedLog) for proof in _prove_checkpoint(log.disk, damage.path))
    segment = segment_with(log, damage.path)
    if segment is None:
        # It was truncated or dropped, and with it what was wrong in it.
        return False
    view = _segment_view(segment)
    index, index_damage = _index_of(log.disk, view)
    if damage.path == view.index_path:
        return index_damage is not None
    proofs = view.proofs or index
    row = proofs.row_of_position(damage.position)
    suspected = proofs.rows(row, row + 1)
    return any(isinstance(proof, DamagedLog) for proof in _prove_batches(log.disk, view.path, suspected))


def segment_with(log: Log, path: str) -> Segment | None:
    """The segment that a file belongs to; None where the log has none such."""
    return next((segment for segment in log.segments if path in segment.paths()), None)


def _checkpoints(log: Log) -> tuple[str, str]:
    return f"{log.directory}/{RECOVERY_FILE}", f"{log.directory}/{EPOCHS_FILE}"


def _segment_view(segment: Segment) -> SegmentView:
    proofs = None if segment.is_sealed else segment.proofs()
    return SegmentView(segment.path, segment.index_path, segment.base_offset, segment.size, proofs)


def _index_of(disk: Disk, segment: SegmentView) -> tuple[Index, DamagedLog | None]:
    """What the index file has, and what is wrong with it."""
    path = segment.index_path
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return Index(), None if segment.proofs is not None else DamagedLog(path, 0, "it is gone")
    try:
        index, damage = load(file, segment.base_offset)
    except OSError as error:
        return Index(), DamagedLog(path, 0, f"the disk cannot read it: {error.strerror}")
    finally:
        file.close()
    if damage is None and segment.proofs is None and index.end != segment.size:
        damage = IncompleteIndex(path, 0, f"it covers {index.end} bytes of a segment that has {segment.size}")
    return index, damage


def _prove_batches(disk: Disk, path: str, proofs: Index) -> Iterator[Proof]:
    """Every interval of a segment against its checksum, up to the first that is not what was written."""
    if not len(proofs):
        return
    try:
        file = disk.open(path)
    except FileNotFoundError:
        yield DamagedLog(path, 0, "it is gone")
        return
    try:
        for intervals in _pieces(proofs):
            begin, size = intervals[0].position, intervals[-1].end - intervals[0].position
            data = memoryview(file.pread(size, begin))
            yield size
            for interval in intervals:
                if crc32c(data[interval.position - begin : interval.end - begin]) != interval.crc:
                    what = f"the {interval.size} bytes from here on are not what was written"
                    yield DamagedLog(path, interval.position, what)
                    return
    except OSError as error:
        yield DamagedLog(path, begin, f"the disk cannot read it: {error.strerror}")
    finally:
        file.close()


def _pieces(proofs: Index) -> Iterator[list[Interval]]:
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
    except OSError as error:
        yield DamagedLog(path, 0, f"the disk cannot read it: {error.strerror}")
