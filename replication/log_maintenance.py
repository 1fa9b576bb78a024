"""Background maintenance of a broker's logs: checkpoints, retention, file removal, all off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.storage.disk import removal
from cordwood.storage.errors import DamagedLog, DiskFailed, DiskFull, OutOfResources, StorageError, change_failed
from cordwood.storage.log_copy import remove_mark
from cordwood.storage.segment import Segment
from cordwood.storage.state import write_checkpoint
from cordwood.storage.steps import run_step

CHECKPOINT_INTERVAL_S = 1.0
CHECKPOINT_AGE_S = 10.0
EXPIRY_INTERVAL_S = 0.5
CHECKPOINT_BYTES = 64 << 20
"""A log is checkpointed after so many new bytes, or CHECKPOINT_AGE_S after the last time: a restart reads no more."""
CHECKPOINTS_PER_ROUND = 20
"""Logs checkpointed by age in one round: thousands of logs take turns, and a restart reads a little more of each."""
TRUNCATION_POLL_S = 0.01
PARTITIONS_PER_TURN = 500
"""Partitions handled before the event loop runs other work."""
REMOVE_AGAIN_S = 10.0
"""Delay before another try, after files could not be removed for lack of resources."""
ROOM_INTERVAL_S = 1.0
"""Interval of looks for room in a log directory that has refused a write."""
LEFTOVERS_PAUSE_S = 0.01
"""Pause after each file of an earlier run that is removed: replicas in use need the disk more."""
PARTITIONS_PER_EXPIRY = 2500
"""Partitions whose waiters are checked in one round: with 10,000 partitions a refusal is two seconds late."""

_events = structlog.get_logger("housekeeping")


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
        self._dirty_since: dict[Partition, float] = {}
        self._checkpoint_locks = {directory: asyncio.Lock() for directory in replicas.directories}
        self._running_checkpoints: set[asyncio.Future[None]] = set()
        self._due: dict[LogDirectory, dict[Partition, None]] = {directory: {} for directory in replicas.directories}
        self._checkpointing: set[LogDirectory] = set()
        self._left_copies: set[tuple[LogDirectory, UUID, int]] = set()
        """Where the files of moved replicas are to be removed."""
        self._tasks = Tasks()

    def start(self) -> None:
        for directory in self._replicas.directories:
            self._tasks.repeat(partial(self._checkpoint_later, directory), f"checkpoints in {directory.path}")
            self._tasks.repeat(partial(self._retain_later, directory), f"retention in {directory.path}")
            self._tasks.repeat(partial(self._look_for_room, directory), f"room in {directory.path}")
        self._tasks.repeat(self._expire_waiters, "expiry of waiters")
        self._tasks.repeat(self._watch_followers, "lag of followers")

    async def stop(self) -> None:
        await self._tasks.close()
        if self._running_checkpoints:
            await asyncio.wait(self._running_checkpoints)

    def remove(self, partitions: Sequence[Partition]) -> None:
        """Delete the files of removed partitions, once no reader can use them any more."""
        for partition in partitions:
            self._dirty_since.pop(partition, None)
        for directory in {partition.directory: None for partition in partitions}:
            of_directory = [partition for partition in partitions if partition.directory is directory]
            self._tasks.spawn(self._remove_partitions(directory, of_directory))

    def remove_orphans(self, orphans: Sequence[tuple[LogDirectory, UUID, int]]) -> None:
        """Delete the files of topics that were deleted, and partitions that were moved, while this broker was down."""
        for directory in {row[0]: None for row in orphans}:
            self._tasks.spawn(self._remove_orphans([row for row in orphans if row[0] is directory]))

    def remove_copy(self, directory: LogDirectory, partition: Partition, segments: Sequence[Segment] = ()) -> None:
        """Delete the files that a moved replica has left in `directory`, once no reader can use them any more."""
        self._left_copies.add((directory, partition.topic_id, partition.index))
        self._tasks.spawn(self._remove_copy(directory, partition, segments))

    def remove_leftovers(self) -> None:
        """Remove what earlier runs have left in the log directories, slowly, in the background."""
        for directory in self._replicas.directories:
            self._tasks.spawn(self._remove_leftovers(directory), f"leftovers in {directory.path}")

    def has_left_copy(self, directory: LogDirectory, partition: Partition) -> bool:
        """Return whether a replica that is elsewhere has files in `directory`, or a removal there that is to come.

        An empty log has no files.
        """
        place = partition.topic_id, partition.index
        return (directory, *place) in self._left_copies or directory.disk.exists(directory.partition_path(*place))

    async def checkpoint(self, partition: Partition) -> None:
        """Checkpoint one log now. Raises OutOfResources, after which the log is still due, and DiskFailed."""
        directory = partition.directory
        # One at a time: a checkpoint is staged in one file, and an older one must not replace a newer.
        async with self._checkpoint_locks[directory]:
            while partition.is_checkpoint_locked:
                # A truncation of the log is pending.
                await asyncio.sleep(TRUNCATION_POLL_S)
            directory.uncheckpointed.pop(partition, None)
            if not partition.log.segments or partition.is_deleted:
                return
            try:
                await self._write_checkpoint(partition)
            except OSError as error:
                if not partition.is_deleted:
                    # Last in the queue: the other logs come first.
                    directory.uncheckpointed[partition] = None
                    raise directory.write_failed(error) from error

    async def _write_checkpoint(self, partition: Partition) -> None:
        log = partition.log
        state = log.state()
        partition.is_checkpoint_locked = True
        under_way = asyncio.ensure_future(
            partition.directory.run_blocking(write_checkpoint, log.disk, log.directory, state)
        )

        def ended(future: "asyncio.Future[None]") -> None:
            # Runs even if the caller was cancelled meanwhile.
            self._running_checkpoints.discard(future)
            partition.is_checkpoint_locked = False
            log.producers.encoded()
            if not future.cancelled() and future.exception() is None:
                has_moved = state.log_start != log.flushed_start
                log.checkpoint_written(state)
                if has_moved:
                    partition.log_start_flushed()
            else:
                log.checkpoint_failed(state)

        under_way.add_done_callback(ended)
        self._running_checkpoints.add(under_way)
        await asyncio.shield(under_way)

    async def commit_swap(
        self, partition: Partition, replaced: Sequence[Segment], delay_s: float | None = None
    ) -> None:
        """Checkpoint a log in which the log cleaner has replaced segments, and delete their files after the delay.

        That is the topic's delete delay if None. Raises as `checkpoint`; then a later checkpoint commits the swap.
        """
        try:
            await self.checkpoint(partition)
        except OutOfResources:
            self._tasks.spawn(self._remove_replaced(partition, replaced, delay_s, is_committed=False))
            raise
        self._tasks.spawn(self._remove_replaced(partition, replaced, delay_s, is_committed=True))

    def checkpoint_soon(self, partition: Partition) -> None:
        """Checkpoint one log in the background, as soon as the logs before it are checkpointed."""
        directory = partition.directory
        self._due[directory][partition] = None
        if directory not in self._checkpointing:
            self._checkpointing.add(directory)
            self._tasks.spawn(self._checkpoint_waited_for(directory), "checkpoints that are waited for")

    async def _checkpoint_waited_for(self, directory: LogDirectory) -> None:
        due = self._due[directory]
        try:
            while due:
                partition = next(iter(due))
                del due[partition]
                try:
                    with partition.contained():
                        await self.checkpoint(partition)
                except (OSError, StorageError) as error:
                    _log_failure("checkpoint", directory, error)
        finally:
            self._checkpointing.discard(directory)

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
                    _log_failure("retention", directory, error)

    async def _drop_old(self, partition: Partition, now_ms: int) -> None:
        await self._load_timestamps(partition)
        archived_end = partition.context.archive.end_of(partition)
        dropped = partition.log.drop(partition.high_watermark, now_ms, archived_end)
        if dropped:
            self._tasks.spawn(
                self._remove_segments(
                    partition, dropped, is_manifest_written=await self._is_manifest_written(partition)
                )
            )

    async def _is_manifest_written(self, partition: Partition) -> bool:
        """Return whether the files of dropped segments may be deleted, by the manifest on disk. Raises DiskFailed."""
        try:
            await self.checkpoint(partition)
        except DiskFull:
            # The manifest still lists them, but there is no room for a new one before the files are removed.
            return True
        except OutOfResources:
            return False
        return True

    async def _load_timestamps(self, partition: Partition) -> None:
        """Load the largest timestamps of segments that were sealed before there was a manifest."""
        config = partition.log.config
        if config.deletable and config.retention_ms >= 0:
            for segment in [segment for segment in partition.log.segments if not segment.is_timed]:
                try:
                    await partition.directory.run_blocking(segment.load_max_timestamp)
                except DamagedLog as damage:
                    partition.report_damage(damage)

    async def _checkpoint_later(self, directory: LogDirectory) -> None:
        await asyncio.sleep(CHECKPOINT_INTERVAL_S)
        if not directory.is_offline and directory.uncheckpointed:
            await self._checkpoint_due(directory, asyncio.get_running_loop().time())

    async def _checkpoint_due(self, directory: LogDirectory, now: float) -> None:
        try:
            written = 0
            for partition in list(directory.uncheckpointed):
                since = self._dirty_since.setdefault(partition, now)
                is_old = now - since >= CHECKPOINT_AGE_S and written < CHECKPOINTS_PER_ROUND
                if is_old or partition.log.uncheckpointed_bytes >= CHECKPOINT_BYTES:
                    with partition.contained():
                        await self.checkpoint(partition)
                    self._dirty_since.pop(partition, None)
                    written += 1
            # Every sync of another file delays concurrent group commits: one per second would show in their p99.
            if written:
                await directory.run_blocking(directory.flushed_offsets.file.sync)
        except (OSError, StorageError) as error:
            _log_failure("checkpoint", directory, error)

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

    async def _remove_segments(
        self, partition: Partition, segments: Sequence[Segment], *, is_manifest_written: bool
    ) -> None:
        # First: a segment that the manifest lists, and that has no file, counts as lost.
        while not is_manifest_written:
            await asyncio.sleep(REMOVE_AGAIN_S)
            is_manifest_written = await self._is_manifest_written(partition)
        # A reader may still be reading a slice of these segments.
        await asyncio.sleep(self._delete_delay_s(partition))
        await self._remove_files(partition, segments)

    async def _remove_replaced(
        self, partition: Partition, replaced: Sequence[Segment], delay_s: float | None, *, is_committed: bool
    ) -> None:
        while not is_committed:
            # Until then a restart needs them.
            await asyncio.sleep(REMOVE_AGAIN_S)
            with suppress(OutOfResources):
                await self.checkpoint(partition)
                is_committed = True
        await asyncio.sleep(self._delete_delay_s(partition) if delay_s is None else delay_s)
        # Now: a truncation may have removed some of them meanwhile.
        await self._remove_files(partition, partition.log.replaced.take(replaced))

    async def _remove_files(self, partition: Partition, segments: Sequence[Segment]) -> None:
        for segment in segments:
            segment.release()
            await self._remove_all(partition.directory, partition.directory.disk.remove, segment.paths())

    def _delete_delay_s(self, partition: Partition) -> float:
        delay_ms = partition.log.config.delete_delay_ms
        return self._intervals.delete_delay_s if delay_ms is None else delay_ms / 1000

    async def _remove_partitions(self, directory: LogDirectory, partitions: Sequence[Partition]) -> None:
        await asyncio.sleep(max(map(self._delete_delay_s, partitions), default=0))
        for partition in partitions:
            while partition.log.is_flushing and not directory.is_offline:
                await asyncio.sleep(CHECKPOINT_INTERVAL_S)
            partition.log.release()
            # A partition that was moved away may have been moved back, and continues with its old files.
            await self._remove_replica(directory, partition.topic_id, partition.index)
        for topic_id in {partition.topic_id: None for partition in partitions}:
            await self._remove_topic(directory, topic_id)

    def _is_home(self, directory: LogDirectory, topic_id: UUID, index: int) -> bool:
        """Return whether a replica of the partition is in `directory` now."""
        replica = self._replicas.with_id(topic_id, index)
        return replica is not None and replica.directory is directory

    async def _remove_copy(self, directory: LogDirectory, partition: Partition, segments: Sequence[Segment]) -> None:
        place, home = (partition.topic_id, partition.index), partition.log.directory
        await asyncio.sleep(self._delete_delay_s(partition))
        for segment in segments:
            segment.release()
        path = directory.partition_path(*place)
        staged = await self._staged_replica(directory, *place)
        try:
            if not self._is_home(directory, *place):
                # In the step that renames the files: a replica that is added again has a flush mark of its own.
                directory.flushed_offsets.forget(*place)
        except OSError as error:
            _log_failure("removal of a moved replica's flush mark", directory, error)
        await self._remove_all(directory, directory.disk.remove_tree, staged)
        self._left_copies.discard((directory, *place))
        try:
            has_moved_on = partition.is_deleted or partition.flusher is None or partition.log.directory != home
            if not has_moved_on and not directory.disk.exists(path):
                # First: a power cut must not bring the files back when the other copy has no mark any more.
                await directory.run_blocking(directory.sync_topic, partition.topic_id)
                await partition.directory.run_blocking(remove_mark, partition.log.disk, home)
        except OSError as error:
            _log_failure("removal of a moved replica", directory, error)

    async def _remove_orphans(self, orphans: Sequence[tuple[LogDirectory, UUID, int]]) -> None:
        for directory, topic_id, index in orphans:
            try:
                await self._remove_orphan(directory, topic_id, index)
            except OSError as error:
                # The next start finds the rest of it.
                _log_failure("removal of an orphan", directory, error)

    async def _remove_orphan(self, directory: LogDirectory, topic_id: UUID, index: int) -> None:
        staged = await self._staged_replica(directory, topic_id, index)
        if self._is_home(directory, topic_id, index):
            return
        # In the step that renames the files: a replica that is added again must not find the flush mark of these.
        self._replicas.forget_home(topic_id, index)
        await self._remove_all(directory, directory.disk.remove_tree, staged)
        if directory.is_vacant(topic_id):
            await self._remove_topic(directory, topic_id)

    async def _remove_replica(self, directory: LogDirectory, topic_id: UUID, index: int) -> None:
        """Remove the files of a replica, unless it is in `directory` again."""
        staged = await self._staged_replica(directory, topic_id, index)
        await self._remove_all(directory, directory.disk.remove_tree, staged)

    async def _staged_replica(self, directory: LogDirectory, topic_id: UUID, index: int) -> Sequence[str]:
        path = directory.partition_path(topic_id, index)
        return await self._staged(directory, path, lambda: self._is_home(directory, topic_id, index))

    async def _remove_topic(self, directory: LogDirectory, topic_id: UUID) -> None:
        """Remove the directory of a topic, unless this broker has a replica of it again."""
        path = directory.topic_path(topic_id)
        staged = await self._staged(directory, path, lambda: self._replicas.name_of(topic_id) is not None)
        await self._remove_all(directory, directory.disk.remove_tree, staged)

    async def _staged(self, directory: LogDirectory, path: str, is_in_use: Callable[[], bool]) -> Sequence[str]:
        """Rename a tree that is not in use into the staging directory. Return its path there, or nothing.

        It is renamed in the step that asks: a replica that is added while a thread removes the tree has a directory of
        its own.
        """
        while not is_in_use():
            try:
                return (directory.stage_removal(path),)
            except FileNotFoundError:
                break
            except OSError as error:
                if not await self._may_remove_again(path, change_failed(error)):
                    break
        return ()

    async def _remove_leftovers(self, directory: LogDirectory) -> None:
        try:
            paths = await directory.run_blocking(directory.leftovers)
        except OSError as error:
            _log_failure("removal of leftovers", directory, error)
            return
        for path in paths:
            # What cannot be removed at all is left to the next run.
            while (failure := await self._leftover_failure(directory, path)) is not None:
                if not await self._may_remove_again(path, failure):
                    break

    async def _leftover_failure(self, directory: LogDirectory, path: str) -> StorageError | None:
        """Remove a file or a tree with a pause after each file. Return the error; None if `path` is removed."""
        steps = removal(directory.disk, path)
        try:
            while not await directory.run_blocking(run_step, steps):
                await asyncio.sleep(LEFTOVERS_PAUSE_S)
        except FileNotFoundError:
            return None
        except OSError as error:
            return change_failed(error)
        return None

    async def _remove_all(self, directory: LogDirectory, remove: Callable[[str], None], paths: Sequence[str]) -> None:
        """Remove files or trees, however long resources are lacking. A file that cannot be removed at all is left."""
        for path in paths:
            while (failure := await directory.run_blocking(_removal_failure, remove, path)) is not None:
                if not await self._may_remove_again(path, failure):
                    break

    async def _may_remove_again(self, path: str, failure: StorageError) -> bool:
        """Return whether to try again, after a pause: only resources were lacking."""
        _events.warning("files.not_removed", path=path, error=str(failure))
        if not isinstance(failure, OutOfResources):
            return False
        await asyncio.sleep(REMOVE_AGAIN_S)
        return True


def _log_failure(what: str, directory: LogDirectory, error: OSError | StorageError) -> None:
    """Log a failure. The next round tries again, unless the directory is offline."""
    failure = directory.write_failed(error)
    log = _events.error if isinstance(failure, DiskFailed) else _events.warning
    log("housekeeping.not_done", what=what, directory=directory.path, error=str(failure))


def _removal_failure(remove: Callable[[str], None], path: str) -> StorageError | None:
    """Remove `path`, in a thread. Return the error; None if the path does not exist any more."""
    try:
        remove(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return change_failed(error)
    return None
