"""Contents of a compacted log: every record that is left, and the newest decided record of each key.

Replicas are compacted each by itself, so that one may lack records that another still has. They never differ in a
record that both have, nor in the value of a key.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordwood.storage.batch import peek
from cordwood.storage.control import EndTransactionMarker, decode_marker
from cordwood.storage.records import decode

BATCHES_KEPT = 2048
"""Batches whose records are kept."""


class KeyAndValue(NamedTuple):
    """Key and value of a record. A null value deletes the key."""

    key: bytes | None
    value: bytes | None


class CompactedContents:
    """The contents of batches, which are taken in the order of their offsets."""

    def __init__(self, batches: Iterable[bytes] = ()) -> None:
        self.records: dict[int, KeyAndValue] = {}
        self.newest: dict[bytes, int] = {}
        """By key: the highest offset of a record that is not part of an open or aborted transaction."""
        self.decided_at: dict[bytes, int] = {}
        """By key: the offset of that record, or of the marker that has committed it."""
        self._open: dict[int, list[tuple[bytes, int]]] = {}
        for batch in batches:
            self.take(batch)

    def take(self, batch: bytes) -> None:
        header = peek(batch)
        if header.is_control:
            marker = _marker(batch) if header.record_count else None
            if marker is not None:
                ended = self._open.pop(header.producer_id, [])
                for key, offset in ended if marker.is_commit else ():
                    self._decided(key, offset, header.base_offset)
            return
        for offset, content in _decoded(batch):
            self.records[offset] = content
            if content.key is not None and header.is_transactional:
                self._open.setdefault(header.producer_id, []).append((content.key, offset))
            elif content.key is not None:
                self._decided(content.key, offset, offset)

    def value_of(self, key: bytes) -> bytes | None:
        """Return the newest value of a key; None if it has none, or was deleted."""
        offset = self.newest.get(key)
        return None if offset is None else self.records[offset].value

    def _decided(self, key: bytes, offset: int, at: int) -> None:
        if offset >= self.newest.get(key, offset):
            self.newest[key], self.decided_at[key] = offset, at


@functools.lru_cache(BATCHES_KEPT)
def _decoded(batch: bytes) -> list[tuple[int, KeyAndValue]]:
    """Return the offsets and contents of the records of a batch.

    They are kept: a log is read again after each round of its cleaner, and replicas are alike.
    """
    return [(record.offset, KeyAndValue(record.key, record.value)) for record in decode(batch)]


@functools.lru_cache(BATCHES_KEPT)
def _marker(batch: bytes) -> EndTransactionMarker | None:
    """Return the marker of a control batch."""
    return decode_marker(batch)


def differences(one: CompactedContents, other: CompactedContents, start: int, end: int) -> Iterator[str]:
    """Yield a sentence for each difference of two replicas, which both have the offsets from `start` up to `end`."""
    for offset in sorted(one.records.keys() & other.records.keys()):
        if one.records[offset] != other.records[offset]:
            yield f"offset {offset} has {one.records[offset]} and {other.records[offset]}"
    for key in sorted(one.newest.keys() | other.newest.keys()):
        newest = max(one.newest.get(key, -1), other.newest.get(key, -1))
        decided_at = max(one.decided_at.get(key, -1), other.decided_at.get(key, -1))
        if start <= newest and decided_at < end and one.value_of(key) != other.value_of(key):
            yield f"key {key!r} has {one.value_of(key)!r} and {other.value_of(key)!r}"


def losses(known: CompactedContents, left: CompactedContents, start: int, end: int) -> Iterator[str]:
    """Yield a sentence for each way in which what is `left` of a log from `start` up to `end` is not what was written.

    `known` are the contents before they were compacted.
    """
    for offset, content in left.records.items():
        if start <= offset < end and known.records.get(offset, content) != content:
            yield f"offset {offset} has {content}, and had {known.records[offset]}"
    for key, offset in known.newest.items():
        if offset < start or known.decided_at[key] >= end:
            continue
        if left.newest.get(key, -1) > offset and left.newest[key] < end:
            yield f"key {key!r} has offset {left.newest[key]}, and {offset} was the newest"
        elif left.value_of(key) != known.records[offset].value:
            yield f"key {key!r} has {left.value_of(key)!r}, and offset {offset} gave it {known.records[offset].value!r}"
