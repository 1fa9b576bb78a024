"""One share partition at the leader of its partition: its state, and the waiting requests."""

import asyncio

from cordwood.cluster.share.share_partition import SharePartition
from cordwood.cluster.share.states import SharePartitionKey
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.partition import Partition
from cordwood.replication.waiters import Watcher


class LedSharePartition:
    """A share partition while this broker leads its partition in one leader epoch, and nothing has fenced it."""

    __slots__ = (
        "acks", "is_copying", "is_dropped", "is_write_due", "key", "leader_epoch", "partition", "role", "state",
        "state_epoch", "timer_at", "used_at", "watchers",
    )  # fmt: skip

    def __init__(
        self, key: SharePartitionKey, partition: Partition, role: LeaderRole, state: SharePartition, state_epoch: int
    ) -> None:
        self.key, self.partition, self.role = key, partition, role
        self.state, self.state_epoch = state, state_epoch
        self.leader_epoch = partition.leader_epoch
        self.acks: list[asyncio.Future[None]] = []
        """Acknowledgements that wait for the next write."""
        self.watchers: dict[Watcher, None] = {}
        """Fetches that wait for records, besides those of the partition."""
        self.timer_at: float | None = None
        self.used_at = 0.0
        self.is_write_due = self.is_copying = self.is_dropped = False

    @property
    def is_current(self) -> bool:
        return not self.is_dropped and self.partition.leading is self.role

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if the state is read anew at the next fetch."""
        state = self.state
        is_busy = state.is_writing or state.must_write or self.watchers or self.acks or self.is_copying
        return not is_busy and state.acquired_count() == 0
