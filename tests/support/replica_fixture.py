"""One broker's replicas on a simulated disk, with group commits that end when the test lets them."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.assignment import Assignment
from cordwood.replication.flusher import Flusher
from cordwood.replication.leader_connection import LeaderConnection, LeaderConnections
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition, TopicIdPartition
from cordwood.replication.partition_context import PartitionContext
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import OnSynced, Syncer, sync_all
from cordwood.replication.tasks import RunBlocking
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.batch import split
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Disk, Syncable
from cordwood.storage.records import Record, decode, encode

TOPIC_ID = UUID(int=1)
NOW_MS = 1_700_000_000_000


ME = 1


def surroundings_of(broker_id: int, end_of_tick: EndOfTickScheduler) -> PartitionContext:
    """Return the context of a broker without peers: no ISR proposals, and damage reports are ignored."""
    return PartitionContext(
        broker_id=broker_id,
        end_of_tick=end_of_tick,
        now=asyncio.get_running_loop().time,
        lag_max_s=10.0,
        wants_isr_change=lambda _: None,
        found_damage=lambda _partition, _damage: None,
        start_moved=lambda _: None,
        partition_failed=lambda _: None,
    )


def no_leader_connections() -> LeaderConnections:
    """Return the connections of a broker whose replicas follow no leader."""

    def refuse(leader: int) -> LeaderConnection:
        raise AssertionError(f"no replica here follows broker {leader}")

    return LeaderConnections(refuse)


async def run_here(function: Callable[..., object], *arguments: object) -> object:
    await asyncio.sleep(0)
    return function(*arguments)


def log_directory(
    disk: Disk,
    path: str,
    failed: Callable[[LogDirectory], None],
    syncer: Syncer,
    end_of_tick: EndOfTickScheduler,
    run_blocking: RunBlocking = run_here,
) -> LogDirectory:
    flusher = Flusher(asyncio.get_running_loop(), syncer, end_of_tick)
    return LogDirectory(disk, path, failed, flusher, run_blocking)


class HeldSyncer:
    """A syncer that holds each group until `let_go`."""

    def __init__(self) -> None:
        self.groups: list[tuple[Sequence[Syncable], OnSynced]] = []
        self.count = 0

    def sync(self, files: Sequence[Syncable], done: OnSynced) -> None:
        self.groups.append((files, done))
        self.count += 1

    def let_go(self) -> None:
        """Sync the group under way and report its completion."""
        files, done = self.groups.pop()
        done(sync_all(files))

    def close(self) -> None:
        """Do nothing: there is only the held group."""


class Waiting:
    """A waiter for an offset, with its outcome."""

    def __init__(self, deadline: float = math.inf, *, spans_epochs: bool = True) -> None:
        self.deadline, self.spans_epochs = deadline, spans_epochs
        self.outcome: str | Exception = "waits"

    def reached(self) -> None:
        self.outcome = "reached"

    def failed(self, reason: Exception) -> None:
        self.outcome = reason


class ReplicaFixture:
    """A broker's replicas; needs a running loop."""

    def __init__(
        self, config: LogConfig | None = None, directories: int = 1, run_blocking: RunBlocking = run_here
    ) -> None:
        self.disk = SimulatedDisk(random.Random(1))
        self.end_of_tick = EndOfTickScheduler(asyncio.get_running_loop())
        self.failed: list[LogDirectory] = []
        self.run_blocking = run_blocking
        self._paths = [f"/data{number}" for number in range(directories)]
        self.config = config or LogConfig(segment_bytes=10_000)
        self._open_directories()

    def _open_directories(self) -> None:
        self.syncers = [HeldSyncer() for _ in self._paths]
        self.directories = [
            log_directory(self.disk, path, self._directory_failed, syncer, self.end_of_tick, self.run_blocking)
            for path, syncer in zip(self._paths, self.syncers, strict=True)
        ]
        self.replicas = Replicas(self.directories, surroundings_of(ME, self.end_of_tick))

    @property
    def syncer(self) -> HeldSyncer:
        """The syncer of the first log directory."""
        return self.syncers[0]

    @property
    def flusher(self) -> Flusher:
        """The flusher of the first log directory."""
        return self.directories[0].flusher

    def restart(self) -> None:
        """Kill the process and reopen the log directories from disk. No partition is open yet."""
        self.disk.kill()
        self._open_directories()

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        """Return the partition, opened at the first call."""
        if self.replicas.get(topic, index) is None:
            self.replicas.open(TopicIdPartition(topic, index, TOPIC_ID), self.config, NOW_MS)
            opened = self.replicas.get(topic, index)
            assert opened is not None
            opened.assigned(Assignment(ME, 0, 0, (ME,), frozenset({ME}), 1))
        found = self.replicas.get(topic, index)
        assert found is not None
        return found

    def produce(self, value: str = "v", *, index: int = 0, sequence: int | None = None) -> Waiting:
        """Append a batch of one record and return the waiter for its commit."""
        record = Record(0, NOW_MS, b"k", value.encode())
        producer = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        appended = self.partition(index).append(encode([record], **producer), NOW_MS)
        waiting = Waiting()
        if not self.partition(index).leader.when_committed(appended.end_offset, waiting):
            waiting.outcome = "at once"
        return waiting

    async def produce_and_flush(self, *values: str) -> None:
        """Append a batch for each value and run their group commit."""
        waiting = [self.produce(value) for value in values]
        await self.turn()
        self.syncer.let_go()
        assert {one.outcome for one in waiting} == {"reached"}

    async def synced_by_itself(self) -> None:
        """Wait until the flusher starts a group commit without a request."""
        async with asyncio.timeout(10):
            while not self.syncer.groups:
                await asyncio.sleep(0.01)

    def values_after_a_power_cut(self) -> list[str]:
        """Cut the power, keep only synced bytes, and return the partition's values."""
        self.disk.power_cut(keep=0)
        self._open_directories()
        log = self.partition().log
        assert not log.damage
        batches = [batch for segment in log.segments for batch in split(segment.read(0, segment.size))]
        return [(record.value or b"").decode() for batch in batches for record in decode(bytes(batch))]

    def let_go(self) -> None:
        """Sync the groups under way in all log directories and report their completion."""
        for syncer in self.syncers:
            if syncer.groups:
                syncer.let_go()

    async def turn(self) -> None:
        """Let the event loop run everything that is ready."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _directory_failed(self, directory: LogDirectory) -> None:
        self.failed.append(directory)
        self.replicas.go_offline(directory)


def housekeeping_of(story: ReplicaFixture, wall_clock: Callable[[], int] = lambda: NOW_MS) -> LogMaintenance:
    """Return the log maintenance of the scenario's current replicas. It starts no task of its own."""
    return LogMaintenance(story.replicas, wall_clock, Intervals(1.0, 0.0, 10.0))
