"""Leader epoch cache: the start offset of every leader epoch in a log (KIP-101, KIP-279)."""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordwood.storage.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

_ENTRY = struct.Struct(">iq")


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    offset: Offset


class EpochRange(NamedTuple):
    """A leader epoch and the offsets of adjacent batches that have it, half-open."""

    epoch: LeaderEpoch
    start: Offset
    end: Offset


class LeaderEpochs:
    """Leader epochs and their start offsets, both strictly increasing. Threads may read them."""

    __slots__ = ("_entries", "_is_changed")

    def __init__(self, entries: tuple[EpochStart, ...] = ()) -> None:
        self._entries = entries
        """Replaced as a whole, never changed: a thread may be reading."""
        self._is_changed = False

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: int, offset: int) -> None:
        """Record that the batch at `offset` has `epoch`. Entries that contradict this are stale (KIP-101)."""
        entries = self._entries
        if entries and entries[-1].epoch == epoch:
            return
        while entries and (entries[-1].epoch >= epoch or entries[-1].offset >= offset):
            entries = entries[:-1]
        self._entries = (*entries, EpochStart(LeaderEpoch(epoch), Offset(offset)))
        self._is_changed = True

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """Return the leader epoch of the record at `offset`; NO_EPOCH if unknown."""
        entries = self._entries
        if entries and entries[-1].offset <= offset:
            return entries[-1].epoch
        place = bisect_right(entries, offset, key=lambda entry: entry.offset)
        return entries[place - 1].epoch if place else NO_EPOCH

    def end_of(self, epoch: int, log_end: int) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch at or below `epoch`, and its end offset: the answer of OffsetForLeaderEpoch.

        (NO_EPOCH, NO_OFFSET) if no epoch that old is known (KIP-279).
        """
        place = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if place == 0:
            return NO_EPOCH, NO_OFFSET
        end = self._entries[place].offset if place < len(self._entries) else Offset(log_end)
        return self._entries[place - 1].epoch, end

    def truncate_end(self, end: int) -> None:
        """Remove epochs that begin at or above `end`."""
        kept = tuple([entry for entry in self._entries if entry.offset < end])
        if len(kept) < len(self._entries):
            self._entries, self._is_changed = kept, True

    def truncate_start(self, start: int) -> None:
        """Remove epochs that end at or below `start`; the epoch that contains `start` begins there now."""
        if not self._entries or self._entries[0].offset >= start:
            return
        place = max(bisect_right(self._entries, start, key=lambda entry: entry.offset) - 1, 0)
        self._entries = (EpochStart(self._entries[place].epoch, Offset(start)), *self._entries[place + 1 :])
        self._is_changed = True

    def correct(self, start: int, end: int, found: Iterable[EpochRange]) -> None:
        """Replace the epochs from `start` up to `end` by those that the batches there have, in ascending order.

        An epoch may begin in a gap between them, in which the log cleaner has removed its first records.
        """
        after, place = self.epoch_at(end), bisect_left(self._entries, start, key=lambda entry: entry.offset)
        entries, known, gap = list(self._entries[:place]), self._entries[place:], start
        for some in (*found, EpochRange(after, Offset(end), Offset(end))):
            in_gap = [entry for entry in known if gap <= entry.offset < some.start]
            for entry in (*in_gap, EpochStart(some.epoch, some.start)):
                if (entries[-1].epoch if entries else NO_EPOCH) < entry.epoch <= some.epoch:
                    entries.append(entry)
            gap = some.end
        entries += [entry for entry in known if entry.offset >= end and entry.epoch > after]
        self._is_changed |= tuple(entries) != self._entries
        self._entries = tuple(entries)

    def after(self, before: "LeaderEpochs", end: int) -> "LeaderEpochs":
        """Return the epochs `before` up to `end`, and these from there on."""
        joined = LeaderEpochs(tuple(before))
        for start in self._entries:
            if start.offset >= end:
                joined.assign(start.epoch, start.offset)
        joined.must_be_rewritten()
        return joined

    def unwritten(self) -> bytes | None:
        """Return all entries, encoded; None if the file has them."""
        return self.encode() if self._is_changed else None

    def written(self, encoded: bytes) -> None:
        """Record that the file has `encoded`, which `unwritten` returned; entries may have changed since."""
        if self.encode() == encoded:
            self._is_changed = False

    def must_be_rewritten(self) -> None:
        """Let the next checkpoint write the file, which may differ from the entries."""
        self._is_changed = True

    def encode(self) -> bytes:
        return b"".join(_ENTRY.pack(*entry) for entry in self._entries)

    @classmethod
    def decode(cls, content: bytes) -> "LeaderEpochs":
        """Return the epochs of `encode`, or of `from_log_start`."""
        entries = [EpochStart(LeaderEpoch(e), Offset(o)) for e, o in _ENTRY.iter_unpack(content)]
        return cls(tuple([entry for entry in entries if entry.epoch != NO_EPOCH]))


def from_log_start(encoded: bytes, log_start: int) -> bytes:
    """Return encoded epochs that begin at the log start offset: with NO_EPOCH, if they do not reach down to it.

    The first records are damaged then, or the log cleaner has removed them.
    """
    start = start_of(encoded)
    return encoded if start is None or start <= log_start else _ENTRY.pack(NO_EPOCH, log_start) + encoded


def start_of(encoded: bytes) -> int | None:
    """Return the offset at which encoded epochs begin; None if there are none."""
    return int(_ENTRY.unpack_from(encoded)[1]) if encoded else None
