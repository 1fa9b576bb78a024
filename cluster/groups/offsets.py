"""Committed offsets by group, pending ones of ongoing transactions, and their expiry (KIP-211, KIP-447)."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordwood.cluster.coordination.open_transactions import OpenTransactions, WrittenValue
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.storage.types import TopicPartition

Changes = Mapping[OffsetKey, CommittedOffset | None]
"""Changes of offsets; None removes one."""

OffsetsByPartition = Mapping[TopicPartition, CommittedOffset]
"""One group's offsets by topic and partition."""

_NONE: OffsetsByPartition = MappingProxyType({})


class _Newest(NamedTuple):
    sequence: int
    committed: CommittedOffset | None


class Offsets:
    """Committed offsets, and those that are appended to the log and not committed yet.

    Readers see only committed offsets. A change begins when it is appended, and is then settled or abandoned. Offsets
    that were committed in a transaction are pending until its marker.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._newest: dict[OffsetKey, _Newest] = {}
        self._open: OpenTransactions[OffsetKey, CommittedOffset] = OpenTransactions()
        """The positions are sequence numbers."""
        self._pending_by_group: dict[str, dict[TopicPartition, None]] = {}
        self._sequence = 0

    def live_keys(self) -> Iterator[OffsetKey]:
        """Yield the keys of offsets that are committed or may become committed; some keys come twice."""
        yield from self.uncommitted_keys()
        for group_id, offsets in self._by_group.items():
            for place in offsets:
                yield OffsetKey(group_id, *place)

    def uncommitted_keys(self) -> Iterator[OffsetKey]:
        """Yield the keys of offsets that may become committed; some keys come twice."""
        yield from self._newest
        yield from self._open

    def of(self, group_id: str) -> OffsetsByPartition:
        """Return the committed offsets of one group."""
        return self._by_group.get(group_id, _NONE)

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Return the keys of offsets that one group has committed or is committing."""
        committed = (OffsetKey(group_id, *place) for place in self.of(group_id))
        pending = (OffsetKey(group_id, *place) for place in self._pending_by_group.get(group_id, ()))
        return [*committed, *pending, *(key for key in self._newest if key.group_id == group_id)]

    def has_any(self, group_id: str) -> bool:
        """Return True if a group has committed offsets, or is committing some."""
        is_known = group_id in self._by_group or group_id in self._pending_by_group
        return is_known or any(key.group_id == group_id for key in self._newest)

    def pending_of(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of which ongoing transactions have committed an offset."""
        return frozenset(self._pending_by_group.get(group_id, ()))

    def is_known(self, key: OffsetKey) -> bool:
        """Return True if the log has an offset of the key: committed, being committed, or pending."""
        return self.newest(key) is not None or key in self._open

    def newest(self, key: OffsetKey) -> CommittedOffset | None:
        """Return the newest offset in the log, committed or not."""
        newest = self._newest.get(key)
        if newest is not None:
            return newest.committed
        return self.of(key.group_id).get(key.place)

    def begin(self, changes: Changes) -> int:
        """Note changes that are being appended. Return the sequence number for `settle` or `abandon`."""
        self._sequence += 1
        for key, committed in changes.items():
            self._newest[key] = _Newest(self._sequence, committed)
        return self._sequence

    def settle(self, sequence: int, changes: Changes) -> None:
        """Apply changes that are committed."""
        for key, committed in changes.items():
            newest = self._newest.get(key)
            if newest is None or newest.sequence < sequence:
                # A later change of the same offset was settled first.
                continue
            if newest.sequence == sequence:
                del self._newest[key]
            if committed is None:
                self._open.removed(key, sequence)
                self._not_pending(key)
            else:
                self._open.replaced(key, sequence)
            self.put(key, committed)

    def abandon(self, sequence: int, changes: Changes) -> None:
        """Forget changes that could not be appended."""
        for key in changes:
            newest = self._newest.get(key)
            if newest is not None and newest.sequence == sequence:
                del self._newest[key]

    def write_pending(self, producer_id: int, changes: Mapping[OffsetKey, CommittedOffset]) -> None:
        """Note offsets that a transaction has appended."""
        self._sequence += 1
        for key, committed in changes.items():
            self.restore_pending(producer_id, key, WrittenValue(committed, self._sequence))

    def restore_pending(self, producer_id: int, key: OffsetKey, written: WrittenValue[CommittedOffset] | None) -> None:
        """Note a pending offset, None if a later commit has replaced it, as `write_pending` does."""
        self._open.write(producer_id, key, written)
        self._pending_by_group.setdefault(key.group_id, {})[key.place] = None
        if written is not None:
            self._sequence = max(self._sequence, written.position)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> set[str]:
        """Apply or drop a transaction's pending offsets. Return the groups that had any."""
        keys = self._open.keys_of(producer_id)
        for key, (committed, sequence) in self._open.end(producer_id, is_commit=is_commit):
            newest = self._newest.get(key)
            if newest is not None and newest.sequence < sequence:
                # That commit was appended before this one, and is settled later.
                del self._newest[key]
            self.put(key, committed)
        for key in keys:
            self._not_pending(key)
        return {key.group_id for key in keys}

    def _not_pending(self, key: OffsetKey) -> None:
        """Remove the key from the pending ones, unless another transaction has it."""
        places = self._pending_by_group.get(key.group_id)
        if places is not None and key not in self._open:
            places.pop(key.place, None)
            if not places:
                del self._pending_by_group[key.group_id]

    def put(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        place = key.place
        offsets = self._by_group.get(key.group_id)
        if committed is not None:
            if offsets is None:
                offsets = self._by_group[key.group_id] = {}
            offsets[place] = committed
        elif offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self._by_group[key.group_id]


def expired(group: AnyGroup, offsets: OffsetsByPartition, now_ms: int, retention_ms: int) -> list[OffsetKey]:
    """Return the keys of a group's expired offsets (KIP-211). Times are wall-clock milliseconds."""
    keys = []
    for (topic, partition), committed in offsets.items():
        since_ms = group.retained_from(topic, committed.committed_ms)
        if since_ms is not None and now_ms - since_ms >= retention_ms:
            keys.append(OffsetKey(group.group_id, topic, partition))
    return keys
