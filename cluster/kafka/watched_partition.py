"""One partition of a long poll. When the partition changes, only this partition is read again."""

from typing import Protocol

from cordwood.cluster.kafka.fetch_sessions import FetchedPartition, PartitionKey
from cordwood.replication.partition import Partition


class Poll(Protocol):
    """The long poll that watches partitions."""

    def moved(self, spot: "WatchedPartition", /) -> None: ...

    def fail(self, error: Exception, /) -> None: ...


class WatchedPartition:
    """A partition that a long poll watches."""

    __slots__ = ("fetched", "key", "partition", "poll", "size")

    def __init__(
        self, poll: Poll, partition: Partition, key: PartitionKey, fetched: FetchedPartition, size: int
    ) -> None:
        self.poll, self.partition, self.key, self.fetched = poll, partition, key, fetched
        self.size = size
        """Available bytes at the last read."""

    def wake(self) -> None:
        self.poll.moved(self)

    def fail(self, error: Exception) -> None:
        self.poll.fail(error)
