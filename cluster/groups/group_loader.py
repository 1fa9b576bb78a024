"""Loader of the groups of one kind, from the records of a shard."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.storage.steps import Steps


class GroupLoader(ABC):
    """The loader of all groups of one kind in a shard. It gets the newest value of each key, in no particular order."""

    key_versions: Sequence[int]
    """The versions of the keys of this kind's records."""

    @abstractmethod
    def take(self, version: int, key: FieldReader, value: bytes) -> Steps[None]:
        """Take one record. `key` is read up to its version. Raises CorruptBatch."""

    @abstractmethod
    def groups(self) -> Iterator[AnyGroup | None]:
        """Yield the groups, after all records. None is a step of a large group. Raises CorruptBatch."""
