"""How far each log of a directory has been flushed, noted right behind every group commit.

A note is one small write into the page cache: a killed process leaves it exact, a power cut may set it back by some
seconds, since it is synced only with checkpoints. Recovery never cuts below it, and a log that ends short of it has
lost something. Slots of 32 bytes: topic id, partition u32, flushed end i64, CRC-32C of the three.
"""

import struct
from uuid import UUID

from crc32c import crc32c

from cordwood.storage.disk import Disk, File
from cordwood.storage.errors import DamagedLog

_SLOT = struct.Struct(">16sIqI")
_CHECKED = struct.Struct(">16sIq")
SLOT_BYTES = _SLOT.size
_FREE = bytes(SLOT_BYTES)


class Marks:
    """The flushed ends of a log directory's partitions, in one file."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.damage: list[DamagedLog] = []
        self.file: File = disk.open(path, create=True)
        self._slots: dict[tuple[UUID, int], int] = {}
        self._ends: dict[tuple[UUID, int], int] = {}
        self._free: list[int] = []
        content = self.file.pread(self.file.size(), 0)
        self._count = (len(content) + SLOT_BYTES - 1) // SLOT_BYTES
        for slot in range(self._count):
            self._load(slot, content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        self._free.reverse()

    def get(self, topic_id: UUID, partition: int) -> int | None:
        """The end offset noted for a log when the directory was opened; None where there is none."""
        return self._ends.get((topic_id, partition))

    def slot(self, topic_id: UUID, partition: int) -> int:
        """Where the log's mark is kept, claimed at the first call."""
        key = (topic_id, partition)
        if key not in self._slots:
            self._slots[key] = self._free.pop() if self._free else self._count
            self._count = max(self._count, self._slots[key] + 1)
        return self._slots[key]

    def note(self, slot: int, topic_id: bytes, partition: int, end_offset: int) -> None:
        """Everything below `end_offset` is on disk."""
        checked = _CHECKED.pack(topic_id, partition, end_offset)
        self.file.pwrite([checked, crc32c(checked).to_bytes(4, "big")], slot * SLOT_BYTES)

    def forget(self, topic_id: UUID, partition: int) -> None:
        """The log is gone; its slot is free for another."""
        slot = self._slots.pop((topic_id, partition), None)
        self._ends.pop((topic_id, partition), None)
        if slot is not None:
            self.file.pwrite([_FREE], slot * SLOT_BYTES)
            self._free.append(slot)

    def _load(self, slot: int, content: bytes) -> None:
        if not any(content):
            self._free.append(slot)
            return
        if len(content) < SLOT_BYTES or crc32c(content[: _CHECKED.size]) != _SLOT.unpack(content)[3]:
            self.damage.append(DamagedLog(self.file.path, slot * SLOT_BYTES, "a flush mark is not what was written"))
            self._free.append(slot)
            return
        topic_id, partition, end, _ = _SLOT.unpack(content)
        key = (UUID(bytes=topic_id), partition)
        self._slots[key], self._ends[key] = slot, end
