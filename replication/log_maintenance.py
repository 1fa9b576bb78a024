"""Maintenance of a broker's logs: retention, room on their disks, and time limits of waiters and followers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cordwood.replication.checkpoints import Checkpoints
from cordwood.replication.file_removal import FileRemoval
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import DamagedLog, StorageError

EXPIRY_INTERVAL_S = 0.5
PARTITIONS_PER_TURN = 500
"""Partitions handled before the event loop runs other work."""
ROOM_INTERVAL_S = 1.0
"""Interval of looks for room in a log directory that has refused a write."""
PARTITIONS_PER_EXPIRY = 2500
"""Partitions whose waiters are checked in one round: with 10,000 partitions a refusal is two seconds late."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of the background tasks in seconds."""

    retention_s: float
    delete_delay_s: float
    """Delay before the files of removed segments are deleted, unless the topic's configuration has its own."""
    lag_max_s: float


class LogMaintenance:
    """Background tasks of one broker's logs."""

    def __init__(self, replicas: Replicas, wall_clock: Callable[[], int], intervals: Intervals) -> None:
        self._replicas, self._wall_clock, self._intervals = replicas, wall_clock, intervals
        self._tasks = Tasks()
        self.checkpoints = Checkpoints(replicas.directories, self._tasks)
        self.file_removal = FileRemoval(replicas, self.checkpoints, self._tasks, intervals.delete_delay_s)

    def start(self) -> None:
        for directory in self._replicas.directories:
            self.checkpoints.start(directory)
            self._tasks.repeat(partial(self._retain_later, directory), f"retention in {directory.path}")
            self._tasks.repeat(partial(self._look_for_room, directory), f"room in {directory.path}")
        self._tasks.repeat(self._expire_waiters, "expiry of waiters")
        self._tasks.repeat(self._watch_followers, "lag of followers")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.checkpoints.stop()

    async def retain(self, directory: LogDirectory) -> None:
        """Apply retention to every log of a directory once, and expire idle producers."""
        now_ms = self._wall_clock()
        for count, partition in enumerate(list(self._replicas), 1):
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if partition.directory is not directory or partition.is_offline or partition.is_deleted:
                continue
            log = partition.log
            log.producers.expire(now_ms, log.config.producer_expiry_ms)
            if log.segments:
                try:
                    with partition.contained():
                        await self._drop_old(partition, now_ms)
                except (OSError, StorageError) as error:
                    directory.report_not_done("retention", error)

    async def _drop_old(self, partition: Partition, now_ms: int) -> None:
        await self._load_timestamps(partition)
        # A second look at the batches here would begin again each time that the first of them go.
        lacks = partition.log.lacks_archived_producers
        archived_end = None if lacks else partition.context.archive.end_of(partition)
        dropped = partition.log.drop(partition.high_watermark, now_ms, archived_end)
        if dropped:
            # Unseen batches of a lost end may be only in the archive now.
            partition.report_lacking_producers()
            await self.file_removal.remove_dropped(partition, dropped)

    async def _load_timestamps(self, partition: Partition) -> None:
        """Load the largest timestamps of segments that were sealed before there was a manifest."""
        config = partition.log.config
        if config.deletable and config.retention_ms >= 0:
            for segment in [segment for segment in partition.log.segments if not segment.is_timed]:
                try:
                    await partition.directory.run_blocking(segment.load_max_timestamp)
                except DamagedLog as damage:
                    partition.report_damage(damage)

    async def _retain_later(self, directory: LogDirectory) -> None:
        await asyncio.sleep(self._intervals.retention_s)
        await self.retain(directory)

    async def _look_for_room(self, directory: LogDirectory) -> None:
        await asyncio.sleep(ROOM_INTERVAL_S)
        try:
            await directory.look_for_room()
        except OSError as error:
            directory.write_failed(error)

    async def _expire_waiters(self) -> None:
        now = asyncio.get_running_loop().time
        partitions = list(self._replicas)
        for begin in range(0, len(partitions) or 1, PARTITIONS_PER_EXPIRY):
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            time = now()
            for partition in partitions[begin : begin + PARTITIONS_PER_EXPIRY]:
                if partition.leading is not None:
                    partition.leading.expire_waiters(time)

    async def _watch_followers(self) -> None:
        await asyncio.sleep(self._intervals.lag_max_s / 2)
        for count, partition in enumerate(list(self._replicas), 1):
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if (leading := partition.leading) is not None:
                with partition.contained():
                    leading.watch_followers()
