"""Recovery scan of a segment: batch by batch from the end of its index, to the first that is not whole.

The scan ends at a tear, the rest of a write that a kill or a power cut interrupted, or at damage to bytes that had been
whole. Only a tear may be truncated: it lacks something (`has_hole`) and is above everything that was ever flushed.
Damage is kept, skipped, and never served.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cordwood.storage.batch import HEADER_BYTES, MAGIC, BatchHeader, check, peek
from cordwood.storage.disk import File, read_around
from cordwood.storage.epochs import LeaderEpochs
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.storage.segment import Segment

SCAN_BYTES = 1 << 20
SECTOR_BYTES = 512
_MAGIC_AT = 16
BLANK_BYTES_MAX = 1 << 20

GAP_MAX = 1 << 31
"""Upper bound of the distance between offsets in a segment: a larger one is damage."""


class Tear(NamedTuple):
    """Place where a scan found something other than the next batch."""

    position: int
    offset: int
    what: str


BatchCheck = Callable[[BatchHeader], None]
"""Check of each whole batch; raises CorruptBatch if the batch cannot be right all the same."""


def scan(segment: "Segment", check_batch: BatchCheck) -> Tear | None:
    """Add batch by batch from `segment.size` on. Return None if the file ends at a batch boundary, or the tear.

    Preallocated space that was never written is a tear too, with nothing but a hole in it.
    """
    length = segment.file.size()
    window = FileWindow(segment.file, length)
    while segment.size < length:
        position, offset = segment.size, segment.end_offset
        try:
            data, at = window.batch_at(position)
            header = check(data, at)
            check_batch(header)
        except CorruptBatch as corrupt:
            return Tear(position, offset, str(corrupt))
        segment.note(header.base_offset, header.size, header.max_timestamp, (memoryview(data)[at : at + header.size],))
        segment.end_offset = header.end
    return None


def must_follow(header: BatchHeader, due: int) -> None:
    """Raise CorruptBatch unless the batch begins at offset `due`: its own checksum does not cover its offset.

    An unsealed segment has no gaps: a flipped bit must not pass for one.
    """
    if header.base_offset != due:
        raise CorruptBatch(f"offset {header.base_offset}, but {due} was expected")


def must_not_fall_back(header: BatchHeader, due: int) -> None:
    """Raise CorruptBatch if the batch begins before offset `due`, or further past it than damage reaches."""
    if not due <= header.base_offset < due + GAP_MAX:
        raise CorruptBatch(f"offset {header.base_offset}, but {due} was expected")


def must_be_of_epoch(header: BatchHeader, epochs: LeaderEpochs) -> None:
    """Raise CorruptBatch if the batch has another leader epoch than the log has for its offsets.

    No checksum of the batch covers it. A batch that closes a compacted segment may have the offsets of several epochs.
    """
    first, last = epochs.epoch_at(header.base_offset), epochs.epoch_at(header.end - 1)
    if first != NO_EPOCH and not first <= header.leader_epoch <= last:
        raise CorruptBatch(f"leader epoch {header.leader_epoch} instead of epoch {first}")


def scan_all(segment: "Segment") -> None:
    """Add every readable batch, and skip the damage between them."""

    follows = must_not_fall_back if segment.generation else must_follow

    def check_batch(header: BatchHeader) -> None:
        follows(header, segment.end_offset)
        if segment.epochs is not None:
            must_be_of_epoch(header, segment.epochs)

    while (tear := scan(segment, check_batch)) is not None and step_over(segment, tear):
        pass


def step_over(segment: "Segment", tear: Tear) -> bool:
    """Skip damage: record the bytes up to the next whole batch as damaged. Return False if none follows.

    A later batch counts only if its offset is above the tear's, so that stale bytes do not pass for records.
    """
    length = segment.file.size()
    for position in _candidates(segment.file, tear.position, length):
        try:
            header = _check_at(segment.file, position, length)
        except CorruptBatch:
            continue
        if tear.offset < header.base_offset < tear.offset + GAP_MAX:
            segment.note_damage(position - tear.position)
            segment.end_offset = header.base_offset
            return True
    return False


def has_hole(file: File, position: int) -> bool:
    """Return whether the batch at `position` lacks a whole sector: zeros, or the end of the file, in its place.

    A batch that was never synced has a hole after a power cut or a kill. A batch that was synced and damaged later has
    none.
    """
    length = file.size()
    data = read_around(file, HEADER_BYTES, position)
    if len(data) < HEADER_BYTES or not any(data):
        return True
    stop = position + peek(data).size
    if stop > length:
        return True
    if stop < position + HEADER_BYTES:
        stop = min(position + SCAN_BYTES, length)
    while position < stop:
        sector_end = min((position // SECTOR_BYTES + 1) * SECTOR_BYTES, stop)
        if not any(read_around(file, sector_end - position, position)):
            return True
        position = sector_end
    return False


def is_blank(file: File, position: int) -> bool:
    """Return whether only zeros follow from `position` to the end of the file, as in preallocated space.

    False for more than BLANK_BYTES_MAX, which are not read: one truncation costs less.
    """
    length = file.size() - position
    return 0 <= length <= BLANK_BYTES_MAX and read_around(file, length, position) == bytes(length)


def _check_at(file: File, position: int, length: int) -> BatchHeader:
    size = peek(read_around(file, HEADER_BYTES, position)).size
    if not HEADER_BYTES <= size <= length - position:
        raise CorruptBatch("a length that exceeds the file")
    return check(read_around(file, size, position))


class FileWindow:
    """View of the file that moves forward in large reads."""

    def __init__(self, file: File, length: int) -> None:
        self._file, self._length = file, length
        self._data, self._begin = b"", 0

    def batch_at(self, position: int) -> tuple[bytes, int]:
        """Return bytes that contain the whole batch at `position`, if the file does, and where it begins in them.

        Raises CorruptBatch if the file ends within the header.
        """
        if not self._holds(position, HEADER_BYTES):
            self._data, self._begin = read_around(self._file, SCAN_BYTES, position), position
        size = peek(self._data, position - self._begin).size
        if not self._holds(position, size) and HEADER_BYTES <= size <= self._length - position:
            self._data, self._begin = read_around(self._file, max(size, SCAN_BYTES), position), position
        return self._data, position - self._begin

    def _holds(self, position: int, size: int) -> bool:
        return self._begin <= position and position + size <= self._begin + len(self._data)


def _candidates(file: File, position: int, length: int) -> Iterator[int]:
    """Yield positions after `position` where a header could begin: those with the magic byte in its place."""
    begin = position + 1
    while begin < length:
        data = read_around(file, SCAN_BYTES + _MAGIC_AT, begin)
        at = data.find(MAGIC, _MAGIC_AT)
        while at >= 0:
            yield begin + at - _MAGIC_AT
            at = data.find(MAGIC, at + 1)
        begin += SCAN_BYTES
