"""The groups of one partition of `__consumer_offsets`, in memory, as its records tell of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from cordwood.cluster.groups.formats import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from cordwood.cluster.groups.group import Group
from cordwood.cluster.groups.offsets import Changes, Offsets
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.cluster.groups.topic import Leadership
from cordwood.storage.records import Record

UNSAVED_GROUPS_MAX = 1000
"""Groups that so far only have given out ids. The oldest goes when another comes, and its newcomers begin anew."""

Content = tuple[bytes, bytes | None]
"""Key and value of a record; without a value it is a tombstone."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedValue:
    """A record of a group; None for a tombstone. Known by identity."""

    value: bytes | None


class Readiness(Enum):
    """Whether a partition's groups can be served."""

    LOADING = "its records are being read, or wait to be committed"
    READY = "it is in memory"
    DAMAGED = "its records cannot be read"


class Shard:
    """One partition's groups and offsets, for as long as this broker leads the partition in one epoch.

    What is changed here has been appended to the partition.
    """

    def __init__(self, leadership: Leadership, settings: GroupSettings) -> None:
        self.leadership = leadership
        self.readiness = Readiness.LOADING
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.is_compacting = False
        self._settings = settings
        self._saved: dict[str, list[SavedValue]] = {}
        """What the log says of each group, and behind it what is being written, in that order."""
        self._unsaved: dict[str, None] = {}

    @property
    def partition(self) -> int:
        return self.leadership.partition

    def __len__(self) -> int:
        """How many records its state needs."""
        return len(self.offsets) + len(self._saved)

    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Take in the newest value of each key, one a step. Raises CorruptBatch."""
        for raw_key, value in contents:
            match decode_key(raw_key):
                case OffsetKey() as key:
                    self.offsets.put(key, decode_offset(value))
                    if key.group_id not in self.groups:
                        self.groups[key.group_id] = Group(key.group_id, self._settings)
                case GroupKey(group_id):
                    self.groups[group_id] = Group.restore(group_id, decode_group(value), self._settings)
                    self._saved[group_id] = [SavedValue(value)]
                case None:
                    pass
            yield

    def begin_sessions(self, now_ms: int) -> None:
        """Members that were restored have not been heard of yet: they have a whole session's time from now on."""
        for group in self.groups.values():
            group.begin_sessions(now_ms)

    def open(self, group_id: str) -> Group:
        """The group, made if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._settings)
        return group

    def note_unsaved(self, group: Group) -> list[str]:
        """A group without anything to keep. Returns the ids of those that have to go for it."""
        if group.members or self.is_kept(group.group_id):
            self._unsaved.pop(group.group_id, None)
            return []
        self._unsaved[group.group_id] = None
        excess = len(self._unsaved) - UNSAVED_GROUPS_MAX
        return list(self._unsaved)[:excess] if excess > 0 else []

    def is_kept(self, group_id: str) -> bool:
        """Whether the log knows of the group, or is about to."""
        return self.is_saved(group_id) or bool(self.offsets.keys_of(group_id))

    def is_saved(self, group_id: str) -> bool:
        """Whether the log has the group itself, or is about to."""
        return group_id in self._saved

    def forget(self, group_id: str) -> Group | None:
        self._unsaved.pop(group_id, None)
        return self.groups.pop(group_id, None)

    def save(self, group_id: str, value: bytes | None) -> SavedValue:
        """This is what the log is about to say of the group; None if it is to be removed.

        A copy is kept, since the group itself has moved on by the time that the partition is compacted. `saved` or
        `not_saved` is to follow.
        """
        saving = SavedValue(value)
        self._saved.setdefault(group_id, []).append(saving)
        if value is not None:
            self._unsaved.pop(group_id, None)
        return saving

    def saved(self, group_id: str, saving: SavedValue) -> None:
        """The log says it now, in the place of all that it said before."""
        values = self._saved.get(group_id, [])
        if saving not in values:
            # Something newer has been written meanwhile.
            return
        del values[: values.index(saving)]
        if values == [saving] and saving.value is None:
            del self._saved[group_id]

    def not_saved(self, group_id: str, saving: SavedValue) -> None:
        """It could not be written. What was, or is about to be, stays."""
        values = self._saved.get(group_id, [])
        if saving in values:
            values.remove(saving)
            if not values:
                del self._saved[group_id]

    def all_keys(self) -> list[OffsetKey | GroupKey]:
        """The keys of all that the log has to keep."""
        return [*self.offsets.live_keys(), *map(GroupKey, self._saved)]

    def contents(self, keys: Iterable[OffsetKey | GroupKey]) -> list[Content]:
        """The newest of these as records, leaving out what is gone."""
        contents: list[Content] = []
        for key in keys:
            if isinstance(key, OffsetKey):
                committed = self.offsets.newest(key)
                if committed is not None:
                    contents.append((encode_offset_key(key), encode_offset(committed)))
            elif key.group_id in self._saved and (newest := self._saved[key.group_id][-1].value) is not None:
                contents.append((encode_group_key(key.group_id), newest))
        return contents


def changes_as_contents(changes: Changes) -> list[Content]:
    return [
        (encode_offset_key(key), None if committed is None else encode_offset(committed))
        for key, committed in changes.items()
    ]


def as_records(contents: Iterable[Content], now_ms: int) -> list[Record]:
    return [Record(0, now_ms, key, value) for key, value in contents]
