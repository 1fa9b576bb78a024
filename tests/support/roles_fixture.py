"""A broker whose replica changes roles: leader or follower, in one leader epoch after the other."""

from peer_fixture import FOLLOWER, LEADER, LeaderFixture
from replica_fixture import ME, NOW_MS, TOPIC_ID, housekeeping_of

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.follower_role import FollowerRole
from cordwood.replication.frames import FlushReport, FollowRequest
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.storage.batch import NO_SEQUENCE, check, stamp
from cordwood.storage.config import LogConfig
from cordwood.storage.types import NO_PRODUCER_ID

TOPIC = "t"
TURNS = 12
"""Iterations of the event loop that suffice for everything that waits for no timer."""


class RolesFixture(LeaderFixture):
    """One broker's replicas of a topic. A group commit ends when the test calls `sync`."""

    def __init__(self, config: LogConfig | None = None) -> None:
        super().__init__(config)
        self._log_maintenance = housekeeping_of(self)

    def elect(
        self, index: int = 0, *, epoch: int = 1, isr: tuple[int, ...] = (ME,), min_isr: int = 1, leader: int = ME
    ) -> Partition:
        """Assign another leader epoch, led by this broker unless `leader` names another."""
        partition = self.held(index)
        partition.assigned(Assignment(leader, epoch, epoch, (ME, FOLLOWER), frozenset(isr), min_isr))
        return partition

    def follow(self, index: int = 0, end: int = 0, *, stream: int | None = None) -> None:
        """Send FOLLOW from the log end `end`, with this log's leader epoch of the follower's last record."""
        epoch = self.held(index).leader_epoch
        last_epoch = self.held(index).log.epochs.epoch_at(end - 1) if end else -1
        row = FollowRequest(index if stream is None else stream, TOPIC_ID, index, epoch, end, last_epoch, end)
        self.send(frames.encode_follow([row]))

    def report(self, flushed_end: int, index: int = 0) -> None:
        """Have the follower report its flushed end."""
        self.send(frames.encode_reports([FlushReport(index, flushed_end, 0)]))

    def begin_to_follow(self, index: int = 0, *, epoch: int = 1) -> FollowerRole:
        """Assign another leader epoch in which another broker leads."""
        partition = self.held(index)
        isr = frozenset({ME, LEADER})
        assert partition.assigned(Assignment(LEADER, epoch, epoch, (ME, LEADER), isr, 1))
        partition.following = FollowerRole(_Nobody(), partition, index)
        return partition.following

    def append(self, *values: str, index: int = 0, now_ms: int = NOW_MS) -> None:
        """Append a batch with one record for each value, without a flush."""
        partition = self.held(index)
        for value in values:
            partition.append(batch_of(value), now_ms)

    async def commit(self, *values: str, index: int = 0) -> None:
        """Append as `append` does, and run the group commit on this broker."""
        self.append(*values, index=index)
        await self.sync()

    def damage(self, index: int = 0) -> None:
        """Flip a bit of the first batch on disk."""
        self.disk.flip(self.held(index).log.segments[0].path, 20, 0)

    async def sync(self) -> None:
        """Run all due group commits and their consequences."""
        for _ in range(TURNS):
            await self.turn()
            while self.syncer.groups:
                self.syncer.let_go()
        await self.turn()

    async def truncate(self, partition: Partition, end: int) -> None:
        """Truncate a follower's log, with the group commit that ends the truncation."""
        partition.log.truncate(end)
        partition.truncated()
        partition.directory.flusher.touch(partition)
        await self.sync()

    async def save(self, index: int = 0) -> None:
        """Run `sync`, then checkpoint a log."""
        await self.sync()
        await self._log_maintenance.checkpoints.write(self.held(index))
        await self.turn()

    def held(self, index: int = 0) -> Partition:
        """Return the partition in its current role, opened at the first call."""
        if self.replicas.get(TOPIC, index) is None:
            self.replicas.open(TopicIdPartition(TOPIC, index, TOPIC_ID), self.config, NOW_MS)
        partition = self.replicas.get(TOPIC, index)
        assert partition is not None
        return partition


class _Nobody:
    """A leader that ignores its followers."""

    def report(self, following: FollowerRole) -> None: ...

    def start(self, following: FollowerRole) -> None: ...

    def leave(self, following: FollowerRole) -> None: ...


def stamped(
    value: str, offset: int, epoch: int, *, producer: int = NO_PRODUCER_ID, sequence: int = NO_SEQUENCE
) -> bytes:
    """Return a batch of one record as the leader of an epoch stamps it, of an idempotent producer if one is given."""
    batch = batch_of(value, producer, -1 if producer == NO_PRODUCER_ID else 0, sequence)
    return stamp(check(batch), offset, epoch) + batch[16:]
