"""Loading of groups from the records of `__consumer_offsets`: which kind of group a key version belongs to.

A kind of group adds its loader to `loaders`, and the coordinator restores its groups with all others.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.formats import GROUP_KEY, decode_group
from cordwood.cluster.groups.group import Group


class GroupLoader(ABC):
    """The loader of all groups of one kind in a shard. It gets the newest value of each key, in no particular order."""

    key_versions: Sequence[int]
    """The versions of the keys of this kind's records."""

    @abstractmethod
    def take(self, version: int, key: FieldReader, value: bytes) -> None:
        """Take one record. `key` is read up to its version. Raises CorruptBatch."""

    @abstractmethod
    def groups(self) -> Iterator[AnyGroup]:
        """Yield the groups, after all records."""


class ClassicLoader(GroupLoader):
    """The loader of classic groups: one record each."""

    key_versions = (GROUP_KEY,)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._groups: list[Group] = []

    def take(self, version: int, key: FieldReader, value: bytes) -> None:  # noqa: ARG002
        self._groups.append(Group.restore(key.string(), decode_group(value), self._context.settings))

    def groups(self) -> Iterator[Group]:
        yield from self._groups


def loaders(context: GroupContext) -> list[GroupLoader]:
    """Return a loader for each kind of group. A group of a later one replaces one of the same id."""
    return [ClassicLoader(context)]
