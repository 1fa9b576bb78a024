"""Committed offsets by group, and which of them nobody needs any more."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordwood.cluster.groups.formats import CommittedOffset, OffsetKey
from cordwood.cluster.groups.group import Group
from cordwood.cluster.groups.rebalance import State

Changes = Mapping[OffsetKey, CommittedOffset | None]
"""What becomes of some offsets; None where they go."""

OffsetsByPartition = Mapping[tuple[str, int], CommittedOffset]
"""One group's offsets by topic and partition."""

_NONE: OffsetsByPartition = MappingProxyType({})


class _Newest(NamedTuple):
    sequence: int
    committed: CommittedOffset | None


class Offsets:
    """What is committed, and what has been appended to the log but is not committed yet.

    Readers see the committed only. A change is begun when it is appended, and then settled or abandoned.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._newest: dict[OffsetKey, _Newest] = {}
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def live_keys(self) -> Iterator[OffsetKey]:
        """Of all that is committed or may yet be; some may come twice."""
        yield from self._newest
        for group_id, offsets in self._by_group.items():
            for topic, partition in offsets:
                yield OffsetKey(group_id, topic, partition)

    def of(self, group_id: str) -> OffsetsByPartition:
        """The committed offsets of one group."""
        return self._by_group.get(group_id, _NONE)

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Of all that one group has committed or is about to."""
        committed = (OffsetKey(group_id, topic, partition) for topic, partition in self.of(group_id))
        return [*committed, *(key for key in self._newest if key.group_id == group_id)]

    def newest(self, key: OffsetKey) -> CommittedOffset | None:
        """As the log has it, committed or not."""
        newest = self._newest.get(key)
        if newest is not None:
            return newest.committed
        return self.of(key.group_id).get((key.topic, key.partition))

    def begin(self, changes: Changes) -> int:
        """These are being appended. Returns what they are settled by."""
        self._sequence += 1
        for key, committed in changes.items():
            self._newest[key] = _Newest(self._sequence, committed)
        return self._sequence

    def settle(self, sequence: int, changes: Changes) -> None:
        """These are committed."""
        for key, committed in changes.items():
            newest = self._newest.get(key)
            if newest is None or newest.sequence < sequence:
                # A later change of the same offset was told of first.
                continue
            if newest.sequence == sequence:
                del self._newest[key]
            self.put(key, committed)

    def abandon(self, sequence: int, changes: Changes) -> None:
        """These could not be appended."""
        for key in changes:
            newest = self._newest.get(key)
            if newest is not None and newest.sequence == sequence:
                del self._newest[key]

    def put(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        place = (key.topic, key.partition)
        offsets = self._by_group.get(key.group_id)
        if committed is not None:
            if offsets is None:
                offsets = self._by_group[key.group_id] = {}
            self._count += place not in offsets
            offsets[place] = committed
        elif offsets is not None and offsets.pop(place, None) is not None:
            self._count -= 1
            if not offsets:
                del self._by_group[key.group_id]


def expired(group: Group, offsets: OffsetsByPartition, now_ms: int, retention_ms: int) -> list[OffsetKey]:
    """The offsets of a group that have been kept long enough (KIP-211). Wall-clock milliseconds.

    Without members the time runs from when the last one left. With members it runs, from the last commit, for topics
    that they no longer read; and so it does for consumers that assign partitions to themselves.
    """
    keys = [OffsetKey(group.group_id, topic, partition) for topic, partition in offsets]
    if group.protocol_type is not None and group.state is State.EMPTY and group.emptied_ms is not None:
        return keys if now_ms - group.emptied_ms >= retention_ms else []
    if group.protocol_type is not None and group.state is not State.EMPTY:
        if group.state is not State.STABLE or group.subscribed_topics is None:
            return []
        keys = [key for key in keys if key.topic not in group.subscribed_topics]
    return [key for key in keys if now_ms - offsets[key.topic, key.partition].committed_ms >= retention_ms]
