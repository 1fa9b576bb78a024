"""Uploader of a broker: the archivers of the partitions that it leads, each at work while there is something to do."""

import asyncio
import random
from collections.abc import Callable

from cordwood.archive.store import ObjectStore
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.tiering.archived_topics import COORDINATED
from cordwood.cluster.tiering.measures import ArchiveMeasures
from cordwood.cluster.tiering.partition_archiver import ArchiveContext, PartitionArchiver
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.replication.token_bucket import TokenBucket

INTERVAL_S = 1.0
"""Interval of looks at all partitions. Segments are sealed more rarely."""
RECHECK_S = 10.0
"""Interval of looks at a partition that has not changed: its records grow older."""
STORE_STEPS_AT_ONCE = 4
PARTITIONS_PER_TURN = 200
"""Partitions looked at before the event loop runs other work."""


class Uploader:
    """The archivers of one broker's partitions."""

    def __init__(
        self,
        quorum: Quorum,
        replicas: Replicas,
        store: ObjectStore,
        settings: Settings,
        wall_clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.measures = ArchiveMeasures()
        self._quorum, self._replicas = quorum, replicas
        self._context = ArchiveContext(
            quorum=quorum,
            store=store,
            wall_clock=wall_clock,
            rng=rng,
            allowance=TokenBucket(settings.archive_upload_bytes_per_second, burst=0.0),
            store_steps=asyncio.Semaphore(STORE_STEPS_AT_ONCE),
            measures=self.measures,
            grace_ms=settings.archive_grace_ms,
            compacted_delay_ms=settings.archive_compacted_delay_ms,
            is_undelayed=COORDINATED.__contains__,
        )
        self._archivers: dict[Partition, PartitionArchiver] = {}
        self._running: dict[Partition, asyncio.Task[None]] = {}
        self._looked: dict[Partition, tuple[object, float]] = {}
        """The result and the time of the last look at a partition."""
        self._recheck_s = min(RECHECK_S, settings.log_retention_check_interval_ms / 1000)
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.repeat(self._look, "uploads to the archive")

    async def close(self) -> None:
        """Cancel the uploads under way. The next leader continues with the manifest as it is."""
        await self._tasks.close()

    async def _look(self) -> None:
        archives, now = self._quorum.image.archives, asyncio.get_running_loop().time()
        led: set[Partition] = set()
        for count, partition in enumerate(list(self._replicas), 1):
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if partition.is_leader and (
                partition.log.config.is_archived or (partition.topic_id, partition.index) in archives
            ):
                led.add(partition)
                self._look_at(partition, now)
        for partition in self._archivers.keys() - led:
            del self._archivers[partition]
            self._looked.pop(partition, None)
        await asyncio.sleep(INTERVAL_S)

    def _look_at(self, partition: Partition, now: float) -> None:
        archiver = self._archivers.get(partition)
        if archiver is None or archiver.leader_epoch != partition.leader_epoch:
            archiver = self._archivers[partition] = PartitionArchiver(partition, self._context)
            self._looked.pop(partition, None)
        if partition in self._running:
            return
        found = archiver.signature()
        before, looked_at = self._looked.get(partition, (None, 0.0))
        if found == before and now - looked_at < self._recheck_s:
            return
        self._looked[partition] = found, now
        task = self._tasks.spawn(archiver.run(), f"archiver of {partition.topic}-{partition.index}")
        self._running[partition] = task
        task.add_done_callback(lambda _: self._running.pop(partition, None))
