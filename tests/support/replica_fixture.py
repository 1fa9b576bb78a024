"""One broker's replicas on a simulated disk, with group commits that happen when the story says so."""

import asyncio
import math
import random
from collections.abc import Sequence
from uuid import UUID

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.replication.assignment import Assignment
from cordwood.replication.flusher import Flusher
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition, Place
from cordwood.replication.replicas import Replicas
from cordwood.replication.surroundings import Surroundings
from cordwood.replication.syncers import Done, Failure
from cordwood.replication.waiters import Wakeups
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Syncable
from cordwood.storage.records import Record, encode

TOPIC_ID = UUID(int=1)
NOW_MS = 1_700_000_000_000


ME = 1


def surroundings_of(broker_id: int, flusher: Flusher, wakeups: Wakeups) -> Surroundings:
    """Of a broker without others: nobody proposes in-sync sets, and damage is for the story to find."""
    return Surroundings(
        broker_id=broker_id,
        flusher=flusher,
        wakeups=wakeups,
        now=asyncio.get_running_loop().time,
        lag_max_s=10.0,
        wants_isr_change=lambda _: None,
        found_damage=lambda _partition, _damage: None,
        partition_failed=lambda _: None,
    )


class HeldSyncer:
    """A syncer that holds each group until it is let go."""

    def __init__(self) -> None:
        self.groups: list[tuple[Sequence[Syncable], Done]] = []
        self.count = 0

    def sync(self, files: Sequence[Syncable], done: Done) -> None:
        self.groups.append((files, done))
        self.count += 1

    def let_go(self) -> None:
        """Sync the group that is under way, and say so."""
        files, done = self.groups.pop()
        failures: list[Failure] = []
        for file in files:
            try:
                file.sync()
            except OSError as error:
                failures.append((file, error))
        done(failures)

    def close(self) -> None:
        """Nothing is held but groups."""


class Waiting:
    """Somebody who waits for an offset, and what became of it."""

    deadline = math.inf

    def __init__(self) -> None:
        self.outcome: str | Exception = "waits"

    def reached(self) -> None:
        self.outcome = "reached"

    def failed(self, reason: Exception) -> None:
        self.outcome = reason


class ReplicaStory:
    """A broker's replicas, told what to do in verbs. To be made on a running loop."""

    def __init__(self, config: LogConfig | None = None, directories: int = 1) -> None:
        self.disk = SimulatedDisk(random.Random(1))
        self.wakeups = Wakeups(asyncio.get_running_loop())
        self.syncer = HeldSyncer()
        self.flusher = Flusher(asyncio.get_running_loop(), self.syncer, self.wakeups)
        self.failed: list[LogDirectory] = []
        paths = [f"/data{number}" for number in range(directories)]
        self.directories = [LogDirectory(self.disk, path, self._directory_failed) for path in paths]
        self.replicas = Replicas(self.directories, surroundings_of(ME, self.flusher, self.wakeups))
        self.config = config or LogConfig(segment_bytes=10_000)

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        """The partition, opened at the first call."""
        if self.replicas.get(topic, index) is None:
            self.replicas.open(Place(topic, index, TOPIC_ID), self.config, NOW_MS)
            opened = self.replicas.get(topic, index)
            assert opened is not None
            opened.assigned(Assignment(ME, 0, 0, (ME,), frozenset({ME}), 1))
        found = self.replicas.get(topic, index)
        assert found is not None
        return found

    def produce(self, value: str = "v", *, index: int = 0, sequence: int | None = None) -> Waiting:
        """One batch with one record, and who waits for its commit."""
        record = Record(0, NOW_MS, b"k", value.encode())
        producer = {} if sequence is None else {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        appended = self.partition(index).append(encode([record], **producer), NOW_MS)
        waiting = Waiting()
        if not self.partition(index).when_committed(appended.end_offset, waiting):
            waiting.outcome = "at once"
        return waiting

    async def turn(self) -> None:
        """Let the loop do what it has to do now."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _directory_failed(self, directory: LogDirectory) -> None:
        self.failed.append(directory)
        self.replicas.go_offline(directory)
