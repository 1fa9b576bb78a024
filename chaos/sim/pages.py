"""The pages of a simulated file: the content in the page cache, the content on disk, and the effect of a power cut."""

import random

SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""


class SparseContent:
    """Bytes with implicit zeros from their end to `size`, so that preallocation costs no memory."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def read(self, length: int, position: int) -> bytes:
        data = self.data[position : position + length]
        if len(data) == length:
            return bytes(data)
        length = max(0, min(length, self.size - position))
        return bytes(data[:length]).ljust(length, b"\0")

    def write(self, content: bytes, position: int) -> None:
        if (lacking := position - len(self.data)) > 0:
            self.data.extend(bytes(lacking))
        end = position + len(content)
        self.data[position:end] = content
        if end > self.size:
            self.size = end

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def copy(self) -> "SparseContent":
        return SparseContent(self.data, self.size)


class Pages:
    """A file in the page cache (`seen`) and on disk (`kept`), with the unsynced ranges between the two.

    A range whose sync failed is no longer unsynced, and not kept either: later syncs skip the range and succeed, as on
    ext4. Only a power cut shows the loss.
    """

    __slots__ = ("_corrupt", "_unsynced", "is_cached", "kept", "seen")

    def __init__(self) -> None:
        self.seen = SparseContent()
        self.kept = SparseContent()
        self._unsynced: list[tuple[int, int]] = []
        self._corrupt: set[int] = set()
        """Bytes with a flipped bit that were not written since."""
        self.is_cached = True

    @property
    def is_synced(self) -> bool:
        return not self._unsynced and self.seen.size == self.kept.size

    def is_kept(self, length: int) -> bool:
        """Return whether the first `length` bytes on disk equal those in the page cache."""
        return self.seen.read(length, 0) == self.kept.read(length, 0)

    def is_corrupt(self, start: int, end: int) -> bool:
        """Return whether any of these bytes is corrupted. Some header fields are covered by no checksum."""
        return bool(self._corrupt) and any(start <= position < end for position in self._corrupt)

    def write(self, content: bytes, position: int) -> None:
        self.seen.write(content, position)
        self._touch(position, position + len(content))
        if self._corrupt:
            self._corrupt = {corrupt for corrupt in self._corrupt if not position <= corrupt < position + len(content)}

    def reserve(self, size: int) -> None:
        self.seen.size = max(self.seen.size, size)

    def resize(self, size: int) -> None:
        if size < len(self.seen.data):
            self._touch(size, len(self.seen.data))
        self.seen.resize(size)
        self._corrupt = {corrupt for corrupt in self._corrupt if corrupt < size}

    def sync(self) -> None:
        for start, end in self._unsynced:
            self.kept.write(self.seen.read(end - start, start), start)
        self._unsynced.clear()
        self.kept.resize(self.seen.size)

    def fail_sync(self) -> None:
        """Fail a sync: the page cache keeps the bytes and takes them for clean."""
        self._unsynced.clear()

    def flip(self, position: int, bit: int) -> None:
        """Flip one bit on disk and in the page cache. Raises IndexError outside the file."""
        if not 0 <= position < self.seen.size:
            raise IndexError(f"byte {position} of a file of {self.seen.size}")
        for content in (self.seen, self.kept):
            if position < content.size:
                content.write(bytes([content.read(1, position)[0] ^ (1 << bit)]), position)
        self._corrupt.add(position)

    def zero(self, position: int, length: int) -> None:
        """Zero a range on disk and in the page cache. Bytes that are zero are not corrupted by that.

        Raises IndexError outside the file.
        """
        if not 0 <= position < position + length <= self.seen.size:
            raise IndexError(f"bytes {position} to {position + length} of a file of {self.seen.size}")
        self._corrupt.update(at for at, byte in enumerate(self.seen.read(length, position), position) if byte)
        for content in (self.seen, self.kept):
            content.write(bytes(max(min(length, content.size - position), 0)), position)

    def shorten(self, size: int) -> None:
        """Remove everything from byte `size` on, on disk and in the page cache."""
        for content in (self.seen, self.kept):
            content.resize(min(size, content.size))
        self._unsynced = [(start, min(end, size)) for start, end in self._unsynced if start < size]
        self._corrupt = {corrupt for corrupt in self._corrupt if corrupt < size}

    def lose_power(self, rng: random.Random, keep: float) -> None:
        """Keep each unsynced sector with probability `keep`, and likewise a new file size or a part of its growth."""
        size = self._size_after_power_cut(rng, keep)
        for sector in self._unsynced_sectors():
            if rng.random() < keep:
                position = sector * SECTOR_BYTES
                self.kept.write(self.seen.read(SECTOR_BYTES, position).ljust(SECTOR_BYTES, b"\0"), position)
        self._settle(size)

    def lose_power_after(self, length: int) -> None:
        """Keep only the first `length` bytes written since the last sync. The file grows only as far as those bytes."""
        for start, end in self._unsynced:
            kept = self.seen.read(min(length, end - start), start)
            if kept:
                self.kept.write(kept, start)
            length -= len(kept)
        self._settle(self.kept.size)

    def _touch(self, start: int, end: int) -> None:
        if self._unsynced and self._unsynced[-1][1] == start:
            start = self._unsynced.pop()[0]
        self._unsynced.append((start, end))

    def _unsynced_sectors(self) -> list[int]:
        return sorted(
            {sector for start, end in self._unsynced for sector in range(start // SECTOR_BYTES, _sectors(end))}
        )

    def _size_after_power_cut(self, rng: random.Random, keep: float) -> int:
        if rng.random() < keep:
            return self.seen.size
        if self.seen.size > self.kept.size and rng.random() < keep:
            return rng.randrange(self.kept.size, self.seen.size)
        return self.kept.size

    def _settle(self, size: int) -> None:
        self.kept.resize(size)
        self.seen = self.kept.copy()
        self._unsynced.clear()
        self.is_cached = False


def _sectors(length: int) -> int:
    """Return the number of sectors that hold `length` bytes."""
    return -(-length // SECTOR_BYTES)
