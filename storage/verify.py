"""Offline verification of logs on disk: every byte of a partition's directory against its checksums.

Nothing is written. Bytes that the index covers are compared with the index's checksums; later batches with their own
checksums, their order and the flushed end. The index, the checkpoints and the flushed offsets have checksums of their
own.
"""

from collections.abc import Iterator

from crc32c import crc32c

from cordwood.storage import checkpoint
from cordwood.storage.aborted_index import SUFFIX, AbortedIndex
from cordwood.storage.batch import HEADER_BYTES, MAGIC, BatchHeader, check, peek
from cordwood.storage.disk import Disk, File
from cordwood.storage.errors import CorruptBatch, DamagedLog
from cordwood.storage.flushed_offsets import FlushedOffset
from cordwood.storage.generations import counting
from cordwood.storage.index import Index, Interval, load
from cordwood.storage.manifest import lay_out
from cordwood.storage.open_segments import OpenSegments
from cordwood.storage.recovery import SCAN_BYTES, FileWindow, has_hole
from cordwood.storage.segment_files import SegmentFile, files_in, loss_of, segment_file, segment_path
from cordwood.storage.state import EPOCHS_FILE, RECOVERY_FILE
from cordwood.storage.state import load as load_state

CHECKPOINTS = frozenset({RECOVERY_FILE, EPOCHS_FILE})


def dump_segment(disk: Disk, path: str) -> Iterator[tuple[str, int, BatchHeader]]:
    """Yield path, position and header of each batch. Raises DamagedLog at the first that is not whole."""
    file = disk.open(path)
    position = 0
    try:
        for position, header in _batches(file, 0):
            yield path, position, header
            position += header.size
    except CorruptBatch as corrupt:
        raise DamagedLog(path, _first_non_zero(file, position), str(corrupt)) from corrupt
    finally:
        file.close()


def verify_partition(disk: Disk, directory: str, mark: FlushedOffset | None) -> Iterator[DamagedLog]:
    """Verify everything in a partition's directory. `mark` is its flushed end, None if there is none."""
    names = disk.list_directory(directory)
    for name in names:
        if name in CHECKPOINTS:
            yield from verify_checkpoint(disk, f"{directory}/{name}")
    yield from _losses(disk, directory)
    check = _SegmentCheck(disk, mark)
    for file in segments_in(disk, directory):
        yield from check.run(segment_path(directory, *file))
    for name in names:
        if name.endswith((".index", SUFFIX)) and f"{name.partition('.')[0]}.log" not in names:
            yield DamagedLog(f"{directory}/{name}", 0, "an index without its segment")
    if mark is not None and check.due < mark.end_offset:
        yield DamagedLog(directory, 0, f"the log ends at offset {check.due}, but was flushed up to {mark.end_offset}")


def segments_in(disk: Disk, directory: str) -> list[SegmentFile]:
    """Return the segment files in a partition's directory, without those that the log cleaner has replaced."""
    known, files = load_state(disk, directory), files_in(disk, directory)
    if known.segments is None:
        return counting(disk, directory, files)[0]
    layout = lay_out(known.segments, files, max(known.log_start, known.local_start))
    live, _ = counting(disk, directory, layout.others)
    return [file for file in files if file not in layout.removed and (file not in layout.others or file in live)]


def _losses(disk: Disk, directory: str) -> Iterator[DamagedLog]:
    """Yield the segments of the manifest that are missing or short.

    Damage of the manifest itself is not reported here.
    """
    known = load_state(disk, directory)
    for row in known.segments or ():
        path = segment_path(directory, row.base_offset, row.generation)
        if row.end_offset > known.log_start:
            aborted = AbortedIndex(disk, path, row.base_offset, OpenSegments())
            aborted.listed(row.undecided, row.aborted)
            damage = loss_of(disk, path, row.size, row.end_offset - row.base_offset), aborted.damage()
            yield from filter(None, damage)


def verify_checkpoint(disk: Disk, path: str) -> Iterator[DamagedLog]:
    """Verify a file written by `checkpoint.write`."""
    try:
        checkpoint.read(disk, path)
    except DamagedLog as damage:
        yield damage


def verify_segment(disk: Disk, path: str) -> Iterator[DamagedLog]:
    """Verify one segment and its index."""
    yield from _SegmentCheck(disk, None).run(path)


class _SegmentCheck:
    """Verification of a partition's segments in order. `due` is the expected offset of the next batch."""

    def __init__(self, disk: Disk, mark: FlushedOffset | None) -> None:
        self._disk, self._mark = disk, mark
        self.due = -1
        self._latest_epoch = -1
        self._has_gaps = False
        """Whether offsets may have gaps: the segment was compacted."""

    def run(self, path: str) -> Iterator[DamagedLog]:
        name = segment_file(path)
        if name is None:
            return
        base, self._has_gaps = name.base_offset, name.generation > 0
        if self.due not in (-1, base):
            yield DamagedLog(path, 0, f"the segment begins at offset {base}, but the previous one ends at {self.due}")
        self.due = base
        index, damage = self._index(path, base)
        if damage is not None:
            yield damage
        file = self._disk.open(path)
        try:
            for interval in index:
                yield from self._check_interval(file, interval, base)
            yield from self._check_rest(file, index.end)
        finally:
            file.close()

    def _index(self, path: str, base: int) -> tuple[Index, DamagedLog | None]:
        index_path = path.removesuffix(".log") + ".index"
        if not self._disk.exists(index_path):
            return Index(), None
        file = self._disk.open(index_path)
        try:
            return load(file, base)
        finally:
            file.close()

    def _check_interval(self, file: File, interval: Interval, base: int) -> Iterator[DamagedLog]:
        data = file.pread(interval.size, interval.position)
        if crc32c(data) != interval.crc:
            at, what = _first_damage(data)
            yield DamagedLog(file.path, interval.position + at, what)
            self.due = -1
            return
        if self.due not in (-1, base + interval.offset) and base + interval.offset < self.due:
            yield DamagedLog(
                file.path, interval.position, f"offset {base + interval.offset}, but {self.due} was expected"
            )
        position = 0
        while position < len(data):
            header = peek(data, position)
            position, self.due = position + header.size, header.end
            self._latest_epoch = max(self._latest_epoch, header.leader_epoch)

    def _check_rest(self, file: File, start: int) -> Iterator[DamagedLog]:
        position = start
        try:
            for position, header in _batches(file, start):
                complaint = self._complaint(header)
                if complaint is not None:
                    yield DamagedLog(file.path, position, complaint)
                self.due, self._latest_epoch = header.end, max(self._latest_epoch, header.leader_epoch)
                position += header.size
        except CorruptBatch as corrupt:
            if not self._is_torn(file, position):
                yield DamagedLog(file.path, _first_non_zero(file, position), str(corrupt))

    def _is_torn(self, file: File, position: int) -> bool:
        """Return whether a batch is merely unfinished: the next in order, never flushed, and with a hole in it."""
        head = file.pread(HEADER_BYTES, position)
        if self._mark is None or self.due < self._mark.end_offset or len(head) < HEADER_BYTES:
            return False
        header = peek(head)
        return header.magic == MAGIC and self._is_next(header) and has_hole(file, position)

    def _is_next(self, header: BatchHeader) -> bool:
        return header.base_offset == self.due or (self._has_gaps and header.base_offset > self.due)

    def _complaint(self, header: BatchHeader) -> str | None:
        """Return the error in a batch's offset or epoch, which its own checksum does not cover; None if it has none."""
        if self.due != -1 and not self._is_next(header):
            return f"offset {header.base_offset}, but {self.due} was expected"
        if header.leader_epoch < self._latest_epoch:
            return f"leader epoch {header.leader_epoch} after epoch {self._latest_epoch}"
        if self._mark is not None and self._mark.rules_out(header):
            return f"leader epoch {header.leader_epoch} before epoch {self._mark.leader_epoch}"
        return None


def _batches(file: File, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield each whole batch from `position` on, until the file ends or only zeros remain. Raises CorruptBatch."""
    length = file.size()
    window = FileWindow(file, length)
    while position < length:
        try:
            header = check(*window.batch_at(position))
        except CorruptBatch:
            if _first_non_zero(file, position) >= length:
                return
            raise
        yield position, header
        position += header.size


def _first_damage(data: bytes) -> tuple[int, str]:
    """Return the position and error of an interval's first invalid batch; position 0 if each is valid by itself."""
    position = 0
    while position < len(data):
        try:
            position += check(data, position).size
        except CorruptBatch as corrupt:
            return position, str(corrupt)
    return 0, f"an offset or epoch in the {len(data)} bytes from this position on differs from what was written"


def _first_non_zero(file: File, position: int) -> int:
    """Return the position of the first nonzero byte at or after `position`; the file's length if there is none."""
    length = file.size()
    while position < length:
        data = file.pread(SCAN_BYTES, position)
        rest = data.lstrip(b"\x00")
        if rest:
            return position + len(data) - len(rest)
        position += len(data)
    return length
