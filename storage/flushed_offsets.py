"""Flushed end offset of each log in a log directory, written after every group commit.

An entry is one small write to the page cache: after a kill it is exact, after a power cut up to some seconds old, since
it is synced only with checkpoints. Recovery never truncates below the flushed end, and a log that ends before it has
lost records. Slots of 64 bytes, so that none crosses a sector boundary: topic id, partition u32, flushed end i64,
latest leader epoch i32, whether a truncation may not be on disk u8, zeros, and the CRC-32C of these.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from cordwood.storage.batch import BatchHeader
from cordwood.storage.disk import File, read_around
from cordwood.storage.errors import DamagedLog

_SLOT = struct.Struct(">16sIqi?27xI")
_CHECKED = struct.Struct(">16sIqi?27x")
SLOT_BYTES = _SLOT.size
_FREE = bytes(SLOT_BYTES)
ENTRIES_PER_READ = 256
"""Entries that are read and verified together: one step of the event loop, of about a millisecond."""


class FlushedOffset(NamedTuple):
    """Flushed end of a log: everything below `end_offset` was on disk, and its last record is of `leader_epoch`."""

    end_offset: int
    leader_epoch: int
    is_truncating: bool = False
    """Whether the page cache may lack records that the disk still has: the log was being truncated."""

    def rules_out(self, header: BatchHeader) -> bool:
        """Return whether a batch below the flushed end has a later epoch than its last record. Epochs only rise."""
        return header.end <= self.end_offset and 0 <= self.leader_epoch < header.leader_epoch


@lru_cache(maxsize=64)
def _bytes_of(topic_id: UUID) -> bytes:
    """Return the bytes of a topic id, one object for many partitions of a topic."""
    return topic_id.bytes


class FlushMark:
    """Entry of one log in the file."""

    __slots__ = ("_file", "_partition", "_position", "_topic_id")

    def __init__(self, file: File, slot: int, topic_id: UUID, partition: int) -> None:
        self._file, self._position = file, slot * SLOT_BYTES
        self._topic_id, self._partition = _bytes_of(topic_id), partition

    def note(self, end_offset: int, leader_epoch: int, *, is_truncating: bool = False) -> None:
        """Write the entry: everything below `end_offset` is on disk, and its last record is of `leader_epoch`."""
        checked = _CHECKED.pack(self._topic_id, self._partition, end_offset, leader_epoch, is_truncating)
        self._file.pwrite([checked + crc32c(checked).to_bytes(4, "big")], self._position)


class FlushedOffsets:
    """Flushed ends of a log directory's partitions, in one file."""

    def __init__(self, file: File) -> None:
        self.damage: list[DamagedLog] = []
        self.file = file
        self._slots: dict[tuple[UUID, int], int] = {}
        self._marks: dict[tuple[UUID, int], FlushedOffset] = {}
        self._owners: list[tuple[UUID, int] | None] = []
        """The log of each slot, or None."""
        self._sound: dict[int, int] = {}
        """CRC-32C of the reads whose entries were all intact when they were last verified, by number."""
        self._free: list[int] = []
        content = read_around(file, file.size(), 0)
        slots = range(0, len(content), SLOT_BYTES)
        self._owners = [None] * len(slots)
        for position in slots:
            self._load(position // SLOT_BYTES, content[position : position + SLOT_BYTES])
        self._free.reverse()

    def get(self, topic_id: UUID, partition: int) -> FlushedOffset | None:
        """Return the entry that a log had when the directory was opened; None if it had none."""
        return self._marks.get((topic_id, partition))

    def mark(self, topic_id: UUID, partition: int) -> FlushMark:
        """Return a log's entry, allocated at the first call. Raises OSError if there is no room for one.

        The entry's slot is written immediately, so that `FlushMark.note` never needs more room.
        """
        key = (topic_id, partition)
        if key not in self._slots:
            slot = self._free.pop() if self._free else len(self._owners)
            self.file.pwrite([_FREE], slot * SLOT_BYTES)
            self._slots[key] = slot
            if slot == len(self._owners):
                self._owners.append(None)
            self._owners[slot] = key
        return FlushMark(self.file, self._slots[key], topic_id, partition)

    def damaged_entries(self) -> Iterator[dict[tuple[UUID, int], DamagedLog]]:
        """Yield the logs whose entry is damaged and must be written again, by read of at most ENTRIES_PER_READ entries.

        Each read blocks on the disk, but not for long. Entries may be changed between two of them. Entries with the
        same bytes as before, which were intact, are not decoded again.
        """
        for number, first in enumerate(range(0, len(self._owners), ENTRIES_PER_READ)):
            owners = self._owners[first : first + ENTRIES_PER_READ]
            content = read_around(self.file, len(owners) * SLOT_BYTES, first * SLOT_BYTES)
            crc = crc32c(content)
            if self._sound.get(number) == crc:
                yield {}
                continue
            damaged = {
                key: self._damage(first + slot)
                for slot, key in enumerate(owners)
                if key is not None and not _is_intact(content, slot, key)
            }
            if not damaged:
                self._sound[number] = crc
            yield damaged

    def damage_of(self, topic_id: UUID, partition: int) -> DamagedLog | None:
        """Return the damage of a log's entry, which must be written again. Blocks on the disk, but not for long."""
        key = (topic_id, partition)
        slot = self._slots.get(key)
        if slot is None or _is_intact(read_around(self.file, SLOT_BYTES, slot * SLOT_BYTES), 0, key):
            return None
        return self._damage(slot)

    def forget(self, topic_id: UUID, partition: int) -> None:
        """Free the slot of a log that was removed."""
        slot = self._slots.pop((topic_id, partition), None)
        self._marks.pop((topic_id, partition), None)
        if slot is not None:
            self.file.pwrite([_FREE], slot * SLOT_BYTES)
            self._free.append(slot)
            self._owners[slot] = None

    def _load(self, slot: int, content: bytes) -> None:
        if not any(content):
            self._free.append(slot)
            return
        if len(content) < SLOT_BYTES or crc32c(content[: _CHECKED.size]) != _SLOT.unpack(content)[-1]:
            self.damage.append(self._damage(slot))
            self._free.append(slot)
            return
        topic_id, partition, *mark, _ = _SLOT.unpack(content)
        key = (UUID(bytes=topic_id), partition)
        self._slots[key], self._marks[key] = slot, FlushedOffset(*mark)
        self._owners[slot] = key

    def _damage(self, slot: int) -> DamagedLog:
        return DamagedLog(self.file.path, slot * SLOT_BYTES, "a flush mark differs from what was written")


def _is_intact(content: bytes, slot: int, key: tuple[UUID, int]) -> bool:
    """Return whether a slot has a valid entry of this log, or none yet."""
    noted = content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
    if noted == _FREE:
        return True
    topic_id, partition, *_, crc = _SLOT.unpack(noted)
    is_named: bool = (topic_id, partition) == (key[0].bytes, key[1])
    return is_named and bool(crc == crc32c(noted[: _CHECKED.size]))
