"""Table of last offsets by key in Python, where `record_filter.c` could not be compiled: the same, more slowly."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from cordwood.storage.batch import DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader
from cordwood.storage.compaction.rebuilt import emptied, is_needed, rebuilt, whole_batch_at
from cordwood.storage.compaction.rules import Rules, Sifted
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import varint

_ENTRY_BYTES = 160
"""Memory of an entry of a dict, with its key of 16 bytes and its number."""
_LENGTH_BITS_MAX, _NUMBER_BITS_MAX = 35, 70
_BITS_64 = (1 << 64) - 1


class _Frame(NamedTuple):
    """A record by its places in the batch: its length, its body, the field after its timestamp, and its end."""

    begin: int
    body: int
    after_time: int
    end: int
    offset: int
    time: int
    key: bytes | None
    has_value: bool


class PythonTable:
    """Table of the last offsets of keys: a dict with as many entries as fit into the memory."""

    def __init__(self, bytes_max: int, start: int, limit: int, seed: bytes) -> None:
        self._start, self._seed = start, seed
        self._offsets: dict[bytes, int] = {}
        self.keys_max = max(min(bytes_max // _ENTRY_BYTES, limit - start), 1)
        self.end, self.is_full = start, False

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, key: bytes) -> int | None:
        return self._offsets.get(self._digest(key))

    def put(self, data: Bytes, position: int) -> int:
        header, batch = whole_batch_at(data, position)
        self.put_batch(batch)
        return position if self.is_full else position + header.size

    def put_batch(self, batch: Bytes) -> None:
        header, batch = whole_batch_at(batch, 0)
        if header.end <= self._start:
            return
        for frame in _frames(batch, header):
            if frame.key is None or frame.offset < self._start:
                continue
            digest = self._digest(frame.key)
            if digest not in self._offsets and len(self._offsets) == self.keys_max:
                self.end, self.is_full = frame.offset, True
                return
            self._offsets[digest] = frame.offset
        self.end = header.end

    def sift(self, data: Bytes, position: int, rules: Rules) -> Sifted:
        header, batch = whole_batch_at(data, position)
        return self.sift_batch(batch, rules)._replace(position=position + header.size)

    def sift_batch(self, batch: Bytes, rules: Rules) -> Sifted:
        header, batch = whole_batch_at(batch, 0)
        size, count = len(batch), header.record_count
        if header.base_offset >= rules.end:
            return Sifted(size, bytes(batch), count, count)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        tombstones_go = has_horizon and header.base_timestamp <= rules.now_ms
        kept = [frame for frame in _frames(batch, header) if self._is_kept(frame, rules, tombstones_go)]
        if not kept:
            return Sifted(size, emptied(header) if is_needed(header, rules.needed) else b"", count, 0)
        is_new_horizon = not has_horizon and header.end <= rules.end and not all(frame.has_value for frame in kept)
        if len(kept) == count and not is_new_horizon:
            return Sifted(size, bytes(batch), count, count)
        max_timestamp = max(_wrapped(header.base_timestamp + frame.time) for frame in kept)
        changed = header._replace(
            record_count=len(kept),
            max_timestamp=header.max_timestamp if header.attributes & LOG_APPEND_TIME else max_timestamp,
        )
        if is_new_horizon:
            shift = header.base_timestamp - rules.horizon_ms
            changed = changed._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=rules.horizon_ms)
            content = b"".join([_shifted(batch, frame, shift) for frame in kept])
        else:
            content = b"".join([bytes(batch[frame.begin : frame.end]) for frame in kept])
        return Sifted(size, rebuilt(changed, content), count, len(kept))

    def _is_kept(self, frame: _Frame, rules: Rules, tombstones_go: bool) -> bool:
        if frame.offset >= rules.end:
            return True
        if frame.key is None or (tombstones_go and not frame.has_value):
            return False
        last = self.get(frame.key)
        return last is None or frame.offset >= last

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._seed).digest()


def _frames(batch: Bytes, header: BatchHeader) -> Iterator[_Frame]:
    """Yield the records of a batch. Raises CorruptBatch, also for offsets that do not ascend."""
    due = header.base_offset
    try:
        for frame in frames_of(bytes(batch), header.record_count, HEADER_BYTES, header.base_offset):
            if not due <= frame.offset < header.end:
                raise CorruptBatch("offsets that do not ascend")
            due = frame.offset + 1
            yield frame
    except CorruptBatch as error:
        raise CorruptBatch(f"the batch of offset {header.base_offset} is malformed") from error


def frames_of(content: bytes, count: int, place: int = 0, base_offset: int = 0) -> Iterator[_Frame]:
    """Yield so many records, from `place` to the content's end. Raises CorruptBatch."""
    try:
        for nth in range(count):
            frame = _frame_at(content, place, base_offset)
            if not frame.after_time <= frame.end <= len(content):
                raise CorruptBatch(f"record {nth} is malformed")
            yield frame
            place = frame.end
    except IndexError as error:
        raise CorruptBatch("a record is malformed") from error
    if place != len(content):
        raise CorruptBatch(f"{len(content) - place} bytes after the last record")


def _frame_at(content: bytes, begin: int, base_offset: int) -> _Frame:
    length, body = _number(content, begin)
    time, after_time = _number(content, body + 1, _NUMBER_BITS_MAX)
    delta, place = _number(content, after_time)
    key_bytes, place = _number(content, place)
    key = content[place : place + key_bytes] if key_bytes >= 0 else None
    value_bytes, place = _number(content, place + max(key_bytes, 0))
    end = body + length
    if place + max(value_bytes, 0) > end:
        # The fields reach past the record: no place in the batch is the end of such a record.
        end = len(content) + 1
    return _Frame(begin, body, after_time, end, base_offset + delta, time, key, value_bytes >= 0)


def _number(content: bytes, place: int, bits_max: int = _LENGTH_BITS_MAX) -> tuple[int, int]:
    """Return a varint, of at most 64 bits, and the place after it. Raises IndexError, also for longer ones."""
    number = shift = 0
    while shift < bits_max:
        octet = content[place]
        place += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return _wrapped((number >> 1) ^ -(number & 1)), place
        shift += 7
    raise IndexError


def _wrapped(number: int) -> int:
    """Return a sum of timestamps as one of 64 bits, as clients have it."""
    return ((number + (1 << 63)) & _BITS_64) - (1 << 63)


def _shifted(batch: Bytes, frame: _Frame, shift: int) -> bytes:
    """Return a record with another timestamp delta."""
    rest = bytes(batch[frame.after_time : frame.end])
    body = bytes(batch[frame.body : frame.body + 1]) + varint(_wrapped(frame.time + shift)) + rest
    return varint(len(body)) + body
