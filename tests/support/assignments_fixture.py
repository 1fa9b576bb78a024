"""The replicas of broker 1 on a simulated disk, and the assignments that they follow."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

from replica_fixture import log_directory, no_leader_connections, surroundings_of

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.cluster.broker.assignments import Assignments
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image, PartitionImage, TopicImage
from cordwood.replication.log_maintenance import Intervals, LogMaintenance
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused
from cordwood.replication.replicas import Replicas
from cordwood.replication.syncers import ThreadSyncer
from cordwood.replication.waiters import EndOfTickScheduler

ONE, TWO = BrokerId(1), BrokerId(2)
START_MS = 1_700_000_000_000


def topic(name: str) -> TopicImage:
    return TopicImage(UUID(bytes=name.encode().rjust(16, b"\0")), name, (PartitionImage((ONE,), (ONE,), ONE),))


def image_of(*names: str) -> Image:
    topics = [topic(name) for name in names]
    return replace(
        Image(),
        index=len(topics),
        topics_by_name={topic.name: topic for topic in topics},
        topics_by_id={topic.id: topic for topic in topics},
    )


class AssignmentsFixture:
    """The replicas of broker 1 in two log directories on a simulated disk, and their assignments."""

    def __init__(
        self,
        disk: SimulatedDisk,
        follow_leader: Callable[[Partition, int], None] | None = None,
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        loop, end_of_tick = asyncio.get_running_loop(), EndOfTickScheduler(asyncio.get_running_loop())
        self.disk, self.image = disk, Image()
        syncer = ThreadSyncer(loop, ThreadPoolExecutor(1))
        self.directories = [log_directory(disk, f"/data-{at}", lambda _: None, syncer, end_of_tick) for at in (1, 2)]
        self.wanted: list[Partition] = []
        """The partitions whose leaders wanted an ISR change."""
        context = replace(surroundings_of(ONE, end_of_tick), wants_isr_change=self.wanted.append)
        self.replicas = Replicas(self.directories, context)
        self.log_maintenance = LogMaintenance(self.replicas, lambda: START_MS, Intervals(1e9, 0, 10))
        self.assignments = Assignments(
            self.replicas,
            self.log_maintenance.file_removal,
            follow_leader or no_leader_connections().follow,
            Settings(node_id=ONE),
            lambda: START_MS,
            on_caught_up,
        )

    def follow(self, *names: str) -> None:
        before, self.image = self.image, image_of(*names)
        self.assignments.follow(before, self.image)

    def put_log_of(self, name: str) -> str:
        """Create a partition directory with a checkpoint file in the first log directory, as an earlier run left it."""
        path = self.directories[0].partition_path(topic(name).id, 0)
        self.disk.make_directories(path)
        self.disk.open(f"{path}/recovery", create=True)
        return path

    def serves(self, name: str, index: int = 0) -> bool:
        try:
            self.replicas.led(name, index)
        except PartitionRefused:
            return False
        return True
