"""Shard of a coordinator: the state of one partition of its internal topic, in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, TypeVar

from cordwood.cluster.coordination.open_transactions import OpenTransactions
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.storage.records import Header, Record

Content = tuple[bytes, bytes | None]
"""Key and value of a record; None for the value of a tombstone."""

_KeyT = TypeVar("_KeyT")


class Readiness(Enum):
    """The states of a shard. Only a ready one can be served."""

    LOADING = "loading: its records are being read, or are not committed yet"
    READY = "loaded"
    DAMAGED = "failed: its records cannot be read"


class CoordinatorShard(ABC, Generic[_KeyT]):
    """One partition's state, while this broker leads the partition in one leader epoch.

    Changes here have been appended to the partition.
    """

    def __init__(self, leadership: PartitionLeadership) -> None:
        self.leadership = leadership
        self.readiness = Readiness.LOADING
        self.is_compacting = False

    @property
    def partition(self) -> int:
        return self.leadership.partition

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records that the state needs."""

    @abstractmethod
    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Restore the newest value of each key, one a step. Raises CorruptBatch."""

    def restore_open(self, transactions: OpenTransactions[bytes, bytes]) -> None:
        """Restore what ongoing transactions have written, after `restore`. Raises CorruptBatch."""

    def removable_end(self, end: int) -> int:
        """Return the end of the records, below `end`, that a compaction may delete: no ongoing transaction has any."""
        return end

    @abstractmethod
    def all_keys(self) -> list[_KeyT]:
        """Return the keys of all records that the log has to keep."""

    @abstractmethod
    def contents(self, keys: Iterable[_KeyT]) -> list[Content]:
        """Return the newest records of these keys, without those that are removed."""


def as_records(contents: Iterable[Content], now_ms: int, headers: tuple[Header, ...] = ()) -> list[Record]:
    return [Record(0, now_ms, key, value, headers) for key, value in contents]
