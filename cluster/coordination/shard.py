"""Shard of a coordinator: the state of one partition of its internal topic, in memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from enum import Enum

from cordwood.cluster.coordination.open_transactions import OpenTransactions
from cordwood.cluster.coordination.topic import PartitionLeadership
from cordwood.storage.records import Record

Content = tuple[bytes, bytes | None]
"""Key and value of a record; None for the value of a tombstone."""


class Readiness(Enum):
    """The states of a shard. Only a ready one can be served."""

    LOADING = "loading: its records are being read, or are not committed yet"
    READY = "loaded"
    DAMAGED = "failed: its records cannot be read"


class CoordinatorShard(ABC):
    """One partition's state, while this broker leads the partition in one leader epoch.

    Changes here have been appended to the partition.
    """

    def __init__(self, leadership: PartitionLeadership) -> None:
        self.leadership = leadership
        self.readiness = Readiness.LOADING

    @property
    def partition(self) -> int:
        return self.leadership.partition

    @abstractmethod
    def restore(self, contents: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Restore the newest value of each key, one a step. Raises CorruptBatch."""

    def restore_open(self, transactions: OpenTransactions[bytes, bytes]) -> Iterator[None]:  # noqa: ARG002
        """Restore what ongoing transactions have written, after `restore`, in steps. Raises CorruptBatch."""
        return iter(())


def as_records(contents: Iterable[Content], now_ms: int) -> list[Record]:
    return [Record(0, now_ms, key, value) for key, value in contents]
