"""Shard: the groups and offsets of one partition of `__consumer_offsets`, in memory."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.coordination.open_transactions import OpenTransactions, WrittenValue
from cordwood.cluster.coordination.shard import Content, CoordinatorShard, Readiness
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.cluster.groups.any_group import AnyGroup, GroupKind
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.classic.loader import ClassicLoader
from cordwood.cluster.groups.consumer.loader import ConsumerLoader
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.formats import (
    OFFSET_KEYS,
    decode_offset,
    decode_offset_key,
    encode_offset,
    encode_offset_key,
    read_offset_key,
)
from cordwood.cluster.groups.group_loader import GroupLoader
from cordwood.cluster.groups.offsets import Changes, Offsets
from cordwood.cluster.groups.share.loader import ShareLoader
from cordwood.storage.steps import Steps

UNSAVED_GROUPS_MAX = 1000
"""Largest number of groups that have only pending member ids. The oldest is dropped; its new members start again."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedValue:
    """A value of a group's record, without its bytes. Compared by identity."""

    is_tombstone: bool


class Shard(CoordinatorShard):
    """One partition's groups and offsets."""

    def __init__(self, leadership: PartitionLeadership, context: GroupContext) -> None:
        super().__init__(leadership)
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = Offsets()
        self.appending = asyncio.Lock()
        """Held while many records of a group are appended in several batches."""
        self.leftovers: dict[str, list[bytes]] = {}
        """Keys of a consumer group's records that were not deleted when it became a classic group, by group id.

        They may be in the log. The next conversion of the group, or its removal, deletes them.
        """
        self._context = context
        self._saved: dict[str, list[SavedValue]] = {}
        """The value of each classic group in the log, and after it the values that are being written, in order."""
        self._unsaved: dict[str, None] = {}
        self._ended: deque[tuple[int, bool]] = deque()
        """Producer ids of transactions that ended while the shard was loaded, and whether they were committed."""

    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Restore the newest value of each key, one a step. Raises CorruptBatch."""
        context = self._context
        # A group of a later kind replaces one of the same id.
        kinds: tuple[GroupLoader, ...] = (ClassicLoader(context), ConsumerLoader(context), ShareLoader(context))
        by_version = {version: kind for kind in kinds for version in kind.key_versions}
        with_offsets: dict[str, None] = {}
        for raw_key, value in contents:
            fields = FieldReader(raw_key)
            version = fields.int16()
            if version in OFFSET_KEYS:
                key = read_offset_key(fields)
                self.offsets.put(key, decode_offset(value))
                with_offsets[key.group_id] = None
            elif version in by_version:
                yield from by_version[version].take(version, fields, value)
            yield
        for kind in kinds:
            for group in kind.groups():
                if group is not None:
                    self._restore_group(group)
                yield
        for group_id in with_offsets:
            self.open(group_id)
            yield

    def _restore_group(self, group: AnyGroup) -> None:
        """Add a group of the log. With a record of a classic group, a conversion has not ended, or just begun.

        The classic group has all members then, unlike the consumer group (group rule 4).
        """
        group_id = group.group_id
        if group.kind is GroupKind.CLASSIC:
            self._saved[group_id] = [SavedValue(is_tombstone=False)]
        elif group.kind is GroupKind.CONSUMER and self.is_saved(group_id):
            self.leftovers[group_id] = list(group.record_keys())
            return
        self.groups[group_id] = group

    def restore_open(self, transactions: OpenTransactions[bytes, bytes]) -> Iterator[None]:
        for producer_id, raw_key, written in transactions.values():
            key = decode_offset_key(raw_key)
            if key is not None:
                committed = None if written is None else WrittenValue(decode_offset(written.value), written.position)
                self.offsets.restore_pending(producer_id, key, committed)
                self.open(key.group_id)
            yield
        # The last one may end during these steps, too: the shard is ready right after them.
        while self._ended:
            producer_id, is_commit = self._ended.popleft()
            yield from self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Steps[list[AnyGroup]]:
        """Apply or drop the offsets of a transaction, after its marker. Return the groups of its offsets."""
        if self.readiness is Readiness.LOADING:
            # The marker may come after the records that are being read.
            self._ended.append((producer_id, is_commit))
            return []
        ended = yield from self.offsets.end_transaction(producer_id, is_commit=is_commit)
        return [self.groups[group_id] for group_id in sorted(ended) if group_id in self.groups]

    def open(self, group_id: str) -> AnyGroup:
        """Return the group; create a classic one if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._context.settings)
        return group

    def note_unsaved(self, group: AnyGroup) -> list[str]:
        """Note a group that has nothing to keep. Return the ids of the groups to drop for it."""
        if group.member_count or self.is_kept(group.group_id):
            self._unsaved.pop(group.group_id, None)
            return []
        self._unsaved[group.group_id] = None
        excess = len(self._unsaved) - UNSAVED_GROUPS_MAX
        return list(self._unsaved)[:excess] if excess > 0 else []

    def is_kept(self, group_id: str) -> bool:
        """Return True if the log has a record of the group or of its offsets, or is about to."""
        group = self.groups.get(group_id)
        has_records = group is not None and bool(group.record_keys())
        return has_records or self.is_saved(group_id) or self.offsets.has_any(group_id)

    def is_saved(self, group_id: str) -> bool:
        """Return True if the log has the record of a classic group of that id, or is about to."""
        return group_id in self._saved

    def forget_saved(self, group_id: str) -> None:
        """Forget the record of a classic group that becomes one of another kind, which deletes the record."""
        self._saved.pop(group_id, None)
        self._unsaved.pop(group_id, None)

    def forget(self, group_id: str) -> AnyGroup | None:
        self._unsaved.pop(group_id, None)
        return self.groups.pop(group_id, None)

    def save(self, group_id: str, *, is_tombstone: bool) -> SavedValue:
        """Note a value of the group that is being written, or its removal. Call `saved` or `not_saved` next."""
        saving = SavedValue(is_tombstone)
        self._saved.setdefault(group_id, []).append(saving)
        if not is_tombstone:
            self._unsaved.pop(group_id, None)
        return saving

    def saved(self, group_id: str, saving: SavedValue) -> None:
        """Note that a value is in the log, in place of all earlier ones."""
        values = self._saved.get(group_id, [])
        if saving not in values:
            # A newer value has been written meanwhile.
            return
        del values[: values.index(saving)]
        if values == [saving] and saving.is_tombstone:
            del self._saved[group_id]

    def not_saved(self, group_id: str, saving: SavedValue) -> None:
        """Forget a value that could not be written. Values in the log, and other values being written, stay."""
        values = self._saved.get(group_id, [])
        if saving in values:
            values.remove(saving)
            if not values:
                del self._saved[group_id]


def changes_as_contents(changes: Changes) -> list[Content]:
    return [
        (encode_offset_key(key), None if committed is None else encode_offset(committed))
        for key, committed in changes.items()
    ]
