"""A broker whose replica of a partition changes its role: it leads, it follows, and every time anew."""

from peer_fixture import FOLLOWER, LEADER, LeaderStory
from replica_fixture import ME, NOW_MS, TOPIC_ID, housekeeping_of

from cordwood.chaos.sim.values import batch_of
from cordwood.replication import frames
from cordwood.replication.assignment import Assignment
from cordwood.replication.follower_role import FollowerRole
from cordwood.replication.frames import Follow, Report
from cordwood.replication.partition import Partition, Place
from cordwood.storage.batch import NO_PRODUCER, NO_SEQUENCE, check, stamp
from cordwood.storage.config import LogConfig

TOPIC = "t"
TURNS = 12
"""Of the loop, for all that a story sets off and that waits for no timer."""


class RolesStory(LeaderStory):
    """One broker's replicas of a topic. A group commit ends when the story says so, with `sync`."""

    def __init__(self, config: LogConfig | None = None) -> None:
        super().__init__(config)
        self._log_maintenance = housekeeping_of(self)

    def elect(
        self, index: int = 0, *, epoch: int = 1, isr: tuple[int, ...] = (ME,), min_isr: int = 1, leader: int = ME
    ) -> Partition:
        """Another leader epoch begins, and this broker leads in it."""
        partition = self.held(index)
        partition.assigned(Assignment(leader, epoch, epoch, (ME, FOLLOWER), frozenset(isr), min_isr))
        return partition

    def follow(self, index: int = 0, end: int = 0, *, stream: int | None = None) -> None:
        """The follower has everything below `end`, all of it of the present epoch where there is something."""
        epoch = self.held(index).leader_epoch
        last_epoch = self.held(index).log.epochs.epoch_at(end - 1) if end else -1
        row = Follow(index if stream is None else stream, TOPIC_ID, index, epoch, end, last_epoch, end)
        self.send(frames.encode_follow([row]))

    def report(self, flushed_end: int, index: int = 0) -> None:
        """The follower has everything below `flushed_end` on its disk."""
        self.send(frames.encode_reports([Report(index, flushed_end, 0)]))

    def begin_to_follow(self, index: int = 0, *, epoch: int = 1) -> FollowerRole:
        """Another leader epoch begins, and another broker leads in it."""
        partition = self.held(index)
        isr = frozenset({ME, LEADER})
        assert partition.assigned(Assignment(LEADER, epoch, epoch, (ME, LEADER), isr, 1))
        partition.following = FollowerRole(_Nobody(), partition, index)
        return partition.following

    def append(self, *values: str, index: int = 0, now_ms: int = NOW_MS) -> None:
        """A batch with one record for each value, in memory."""
        partition = self.held(index)
        for value in values:
            partition.append(batch_of(value), now_ms)

    async def commit(self, *values: str, index: int = 0) -> None:
        """As `append`, and the group commit that makes them sure, here."""
        self.append(*values, index=index)
        await self.sync()

    def damage(self, index: int = 0) -> None:
        """A bit flips on disk, in the first batch."""
        self.disk.flip(self.held(index).log.segments[0].path, 20, 0)

    async def sync(self) -> None:
        """All group commits that are due, and what follows from them."""
        for _ in range(TURNS):
            await self.turn()
            while self.syncer.groups:
                self.syncer.let_go()
        await self.turn()

    async def save(self, index: int = 0) -> None:
        """As `sync`, and then checkpoint a log."""
        await self.sync()
        await self._log_maintenance.save(self.held(index))
        await self.turn()

    def held(self, index: int = 0) -> Partition:
        """The partition, opened at the first call, in the role that it has."""
        if self.replicas.get(TOPIC, index) is None:
            self.replicas.open(Place(TOPIC, index, TOPIC_ID), self.config, NOW_MS)
        partition = self.replicas.get(TOPIC, index)
        assert partition is not None
        return partition


class _Nobody:
    """A leader that does not listen."""

    def report(self, following: FollowerRole) -> None: ...

    def start(self, following: FollowerRole) -> None: ...

    def leave(self, following: FollowerRole) -> None: ...


def stamped(value: str, offset: int, epoch: int, *, producer: int = NO_PRODUCER, sequence: int = NO_SEQUENCE) -> bytes:
    """A batch with one record as the leader of an epoch has it; of an idempotent producer where that is given."""
    batch = batch_of(value, producer, -1 if producer == NO_PRODUCER else 0, sequence)
    return stamp(check(batch), offset, epoch) + batch[16:]
