"""Committed offsets by group, pending ones of ongoing transactions, and their expiry (KIP-211, KIP-447)."""

from collections.abc import Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from cordwood.cluster.coordination.open_transactions import OpenTransactions, WrittenValue
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.storage.steps import Steps, portions
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
        self._newest: dict[str, dict[TopicPartition, _Newest]] = {}
        """Those that are appended and not committed yet."""
        self._open: OpenTransactions[OffsetKey, CommittedOffset] = OpenTransactions()
        """The positions are sequence numbers."""
        self._pending_by_group: dict[str, dict[TopicPartition, None]] = {}
        self._sequence = 0

    def live_keys(self) -> Iterator[OffsetKey]:
        """Yield the keys of offsets that are committed or may become committed; some keys come twice.

        Offsets may change in between.
        """
        yield from self.uncommitted_keys()
        for group_id in list(self._by_group):
            for place in list(self.of(group_id)):
                yield OffsetKey(group_id, *place)

    def uncommitted_keys(self) -> Iterator[OffsetKey]:
        """Yield the keys of offsets that may become committed; some keys come twice. Offsets may change in between."""
        for group_id in list(self._newest):
            for place in list(self._newest.get(group_id, ())):
                yield OffsetKey(group_id, *place)
        yield from list(self._open)

    def of(self, group_id: str) -> OffsetsByPartition:
        """Return the committed offsets of one group."""
        return self._by_group.get(group_id, _NONE)

    def keys_of(self, group_id: str) -> Iterator[OffsetKey]:
        """Yield the keys of offsets that one group has committed or is committing. Offsets may change in between."""
        kinds: tuple[Mapping[TopicPartition, object], ...] = (
            self.of(group_id),
            self._pending_by_group.get(group_id, {}),
            self._newest.get(group_id, {}),
        )
        places: dict[TopicPartition, object] = {}
        for kind in kinds:
            places.update(kind)
        return (OffsetKey(group_id, *place) for place in places)

    def has_any(self, group_id: str) -> bool:
        """Return True if a group has committed offsets, or is committing some."""
        return group_id in self._by_group or group_id in self._pending_by_group or group_id in self._newest

    def pending_of(self, group_id: str) -> Set[TopicPartition]:
        """Return the partitions of which ongoing transactions have committed an offset now."""
        return self._pending_by_group.get(group_id, {}).copy().keys()

    def is_pending(self, key: OffsetKey) -> bool:
        """Return True if an ongoing transaction has committed an offset of the key."""
        return key in self._open

    def is_known(self, key: OffsetKey) -> bool:
        """Return True if the log has an offset of the key: committed, being committed, or pending."""
        return self.newest(key) is not None or key in self._open

    def newest(self, key: OffsetKey) -> CommittedOffset | None:
        """Return the newest offset in the log, committed or not."""
        place = key.place
        newest = self._uncommitted(key.group_id, place)
        if newest is not None:
            return newest.committed
        return self.of(key.group_id).get(place)

    def begin(self, changes: Changes) -> int:
        """Note changes that are being appended. Return the sequence number for `settle` or `abandon`."""
        self._sequence += 1
        for key, committed in changes.items():
            self._newest.setdefault(key.group_id, {})[key.place] = _Newest(self._sequence, committed)
        return self._sequence

    def settle(self, sequence: int, changes: Changes) -> None:
        """Apply changes that are committed."""
        for key, committed in changes.items():
            group_id, place = key.group_id, key.place
            newest = self._uncommitted(group_id, place)
            if newest is None or newest.sequence < sequence:
                # A later change of the same offset was settled first.
                continue
            if newest.sequence == sequence:
                self._no_longer_newest(group_id, place)
            if key in self._open:
                if committed is None:
                    self._open.removed(key, sequence)
                    self._not_pending(key, place)
                else:
                    self._open.replaced(key, sequence)
            self._put(group_id, place, committed)

    def abandon(self, sequence: int, changes: Changes) -> None:
        """Forget changes that could not be appended."""
        for key in changes:
            place = key.place
            newest = self._uncommitted(key.group_id, place)
            if newest is not None and newest.sequence == sequence:
                self._no_longer_newest(key.group_id, place)

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

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Steps[set[str]]:
        """Apply or drop a transaction's pending offsets. Return the groups that had any.

        The transaction ends with the first step. An offset is pending, and so unstable, until it is applied or dropped.
        """
        groups: set[str] = set()
        for portion in portions(self._open.end(producer_id, is_commit=is_commit)):
            for key, written in portion:
                group_id, place = key.group_id, key.place
                if written is not None:
                    newest = self._uncommitted(group_id, place)
                    if newest is not None and newest.sequence < written.position:
                        # That commit was appended before this one, and is settled later.
                        self._no_longer_newest(group_id, place)
                    self._put(group_id, place, written.value)
                self._not_pending(key, place)
                groups.add(group_id)
            yield
        return groups

    def put(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        """Set a committed offset, or remove it."""
        self._put(key.group_id, key.place, committed)

    def _put(self, group_id: str, place: TopicPartition, committed: CommittedOffset | None) -> None:
        offsets = self._by_group.get(group_id)
        if committed is not None:
            if offsets is None:
                offsets = self._by_group[group_id] = {}
            offsets[place] = committed
        elif offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self._by_group[group_id]

    def _uncommitted(self, group_id: str, place: TopicPartition) -> _Newest | None:
        changes = self._newest.get(group_id)
        return None if changes is None else changes.get(place)

    def _no_longer_newest(self, group_id: str, place: TopicPartition) -> None:
        changes = self._newest[group_id]
        del changes[place]
        if not changes:
            del self._newest[group_id]

    def _not_pending(self, key: OffsetKey, place: TopicPartition) -> None:
        """Remove the key from the pending ones, unless another transaction has it."""
        places = self._pending_by_group.get(key.group_id)
        if places is not None and key not in self._open:
            places.pop(place, None)
            if not places:
                del self._pending_by_group[key.group_id]


def expired(
    group: AnyGroup, offsets: Iterable[tuple[TopicPartition, CommittedOffset]], now_ms: int, retention_ms: int
) -> Iterator[OffsetKey]:
    """Yield the keys of the offsets of a group that have expired (KIP-211). Times are wall-clock milliseconds."""
    for (topic, partition), committed in offsets:
        since_ms = group.retained_from(topic, committed.committed_ms)
        if since_ms is not None and now_ms - since_ms >= retention_ms:
            yield OffsetKey(group.group_id, topic, partition)
