"""Removal of files that no log uses any more: of removed replicas, dropped segments, former copies, earlier runs."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from math import sqrt
from uuid import UUID

import structlog

from cordwood.replication.checkpoints import CHECKPOINT_INTERVAL_S, Checkpoints
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.storage.disk import removal
from cordwood.storage.errors import DiskFull, OutOfResources, StorageError, change_failed
from cordwood.storage.log_copy import remove_mark
from cordwood.storage.segment import Segment
from cordwood.storage.steps import Steps, run_step

REMOVE_AGAIN_S = 10.0
"""Delay before another try, after files could not be removed for lack of resources."""
STEP_PAUSE_S_MAX, STEP_PAUSE_S_MIN = 1.0, 0.02
"""Pauses after the first step of a removal, and after late ones, unless there is no room (`_pauses`)."""

_events = structlog.get_logger("housekeeping")


class FileRemoval:
    """Removal of files in the log directories of one broker, in the background."""

    def __init__(self, replicas: Replicas, checkpoints: Checkpoints, tasks: Tasks, delay_s: float) -> None:
        """`delay_s` passes before files are deleted that a reader may use, unless the topic has a delay of its own."""
        self._replicas, self._checkpoints, self._tasks, self._delay_s = replicas, checkpoints, tasks, delay_s
        self._left_copies: set[tuple[LogDirectory, UUID, int]] = set()
        """Where the files of moved replicas are to be removed."""

    def remove(self, partitions: Sequence[Partition]) -> None:
        """Delete the files of removed partitions, once no reader can use them any more."""
        for partition in partitions:
            self._checkpoints.forget(partition)
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

    def has_left_copy(self, directory: LogDirectory, partition: Partition) -> bool:
        """Return whether a replica that is elsewhere has files in `directory`, or a removal there that is to come.

        An empty log has no files.
        """
        place = partition.topic_id, partition.index
        return (directory, *place) in self._left_copies or directory.disk.exists(directory.partition_path(*place))

    def remove_leftovers(self) -> None:
        """Remove what earlier runs have left in the log directories, slowly, in the background."""
        for directory in self._replicas.directories:
            self._tasks.spawn(self._remove_leftovers(directory), f"leftovers in {directory.path}")

    async def remove_dropped(self, partition: Partition, segments: Sequence[Segment]) -> None:
        """Delete the files of segments that retention has dropped, once a manifest without them is on disk.

        Raises DiskFailed.
        """
        is_manifest_written = await self._is_manifest_written(partition)
        self._tasks.spawn(self._remove_segments(partition, segments, is_manifest_written=is_manifest_written))

    async def commit_swap(
        self, partition: Partition, replaced: Sequence[Segment], delay_s: float | None = None
    ) -> None:
        """Checkpoint a log in which the log cleaner has replaced segments, and delete their files after the delay.

        That is the topic's delete delay if None. Raises as `Checkpoints.write`; then a later checkpoint commits it.
        """
        try:
            await self._checkpoints.write(partition)
        except OutOfResources:
            self._tasks.spawn(self._remove_replaced(partition, replaced, delay_s, is_committed=False))
            raise
        self._tasks.spawn(self._remove_replaced(partition, replaced, delay_s, is_committed=True))

    async def _is_manifest_written(self, partition: Partition) -> bool:
        """Return whether the files of dropped segments may be deleted, by the manifest on disk. Raises DiskFailed."""
        try:
            await self._checkpoints.write(partition)
        except DiskFull:
            # The manifest still lists them, but there is no room for a new one before the files are removed.
            return True
        except OutOfResources:
            return False
        return True

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
                await self._checkpoints.write(partition)
                is_committed = True
        await asyncio.sleep(self._delete_delay_s(partition) if delay_s is None else delay_s)
        # Now: a truncation may have removed some of them meanwhile.
        await self._remove_files(partition, partition.log.replaced.take(replaced))

    async def _remove_files(self, partition: Partition, segments: Sequence[Segment]) -> None:
        pauses = _pauses()
        for segment in segments:
            segment.release()
            await self._remove_all(partition.directory, segment.paths(), pauses)

    def _delete_delay_s(self, partition: Partition) -> float:
        delay_ms = partition.log.config.delete_delay_ms
        return self._delay_s if delay_ms is None else delay_ms / 1000

    async def _remove_partitions(self, directory: LogDirectory, partitions: Sequence[Partition]) -> None:
        await asyncio.sleep(max(map(self._delete_delay_s, partitions), default=0))
        pauses = _pauses()
        for partition in partitions:
            while partition.log.is_flushing and not directory.is_offline:
                await asyncio.sleep(CHECKPOINT_INTERVAL_S)
            partition.log.release()
            # A partition that was moved away may have been moved back, and continues with its old files.
            staged = await self._staged_replica(directory, partition.topic_id, partition.index)
            await self._remove_all(directory, staged, pauses)
        for topic_id in {partition.topic_id: None for partition in partitions}:
            await self._remove_topic(directory, topic_id, pauses)

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
            directory.report_not_done("removal of a moved replica's flush mark", error)
        await self._remove_all(directory, staged, _pauses())
        self._left_copies.discard((directory, *place))
        try:
            has_moved_on = partition.is_deleted or partition.flusher is None or partition.log.directory != home
            if not has_moved_on and not directory.disk.exists(path):
                # First: a power cut must not bring the files back when the other copy has no mark any more.
                await directory.run_blocking(directory.sync_topic, partition.topic_id)
                await partition.directory.run_blocking(remove_mark, partition.log.disk, home)
        except OSError as error:
            directory.report_not_done("removal of a moved replica", error)

    async def _remove_orphans(self, orphans: Sequence[tuple[LogDirectory, UUID, int]]) -> None:
        pauses = _pauses()
        for directory, topic_id, index in orphans:
            try:
                await self._remove_orphan(directory, topic_id, index, pauses)
            except OSError as error:
                # The next start finds the rest of it.
                directory.report_not_done("removal of an orphan", error)

    async def _remove_orphan(
        self, directory: LogDirectory, topic_id: UUID, index: int, pauses: Iterator[float]
    ) -> None:
        staged = await self._staged_replica(directory, topic_id, index)
        if self._is_home(directory, topic_id, index):
            return
        # In the step that renames the files: a replica that is added again must not find the flush mark of these.
        self._replicas.forget_home(topic_id, index)
        await self._remove_all(directory, staged, pauses)
        if directory.is_vacant(topic_id):
            await self._remove_topic(directory, topic_id, pauses)

    async def _staged_replica(self, directory: LogDirectory, topic_id: UUID, index: int) -> Sequence[str]:
        """Stage the files of a replica for removal, unless it is in `directory` again."""
        path = directory.partition_path(topic_id, index)
        return await self._staged(directory, path, lambda: self._is_home(directory, topic_id, index))

    async def _remove_topic(self, directory: LogDirectory, topic_id: UUID, pauses: Iterator[float]) -> None:
        """Remove the directory of a topic, unless this broker has a replica of it again."""
        path = directory.topic_path(topic_id)
        staged = await self._staged(directory, path, lambda: self._replicas.has_topic_id(topic_id))
        await self._remove_all(directory, staged, pauses)

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
            directory.report_not_done("removal of leftovers", error)
            return
        await self._remove_all(directory, paths, _pauses())

    async def _remove_all(self, directory: LogDirectory, paths: Sequence[str], pauses: Iterator[float]) -> None:
        """Remove files or trees, again while that fails for lack of resources. What remains is left to the next run."""
        for path in paths:
            while (failure := await self._removal_failure(directory, path, pauses)) is not None:
                if not await self._may_remove_again(path, failure):
                    break

    async def _removal_failure(
        self, directory: LogDirectory, path: str, pauses: Iterator[float]
    ) -> StorageError | None:
        """Remove a file or a tree with a pause after each step. Return the error; None if `path` is removed."""
        steps = removal(directory.disk, path)
        try:
            while not await directory.run_blocking(_run_step, steps):
                if directory.free_bytes_at_refusal is None:
                    await asyncio.sleep(next(pauses))
        except FileNotFoundError:
            return None
        except OSError as error:
            return change_failed(error)
        return None

    async def _may_remove_again(self, path: str, failure: StorageError) -> bool:
        """Return whether to try again, after a pause: only resources were lacking."""
        _events.warning("files.not_removed", path=path, error=str(failure))
        if not isinstance(failure, OutOfResources):
            return False
        await asyncio.sleep(REMOVE_AGAIN_S)
        return True


def _pauses() -> Iterator[float]:
    """Yield the pause in seconds after each step of a removal, which may be of many files.

    Replicas in use need the disk more. The rate therefore begins at the bytes of a step per second, and grows in
    proportion to the time: a gibibyte takes half a minute, and what is much larger goes at the full rate soon.
    """
    for step in count(1):
        yield max(STEP_PAUSE_S_MIN, STEP_PAUSE_S_MAX / sqrt(step))


def _run_step(steps: Steps[None]) -> bool:
    """Run a step of a removal, in a thread. Return whether it was the last one.

    A function of this module: the simulator counts interrupted jobs by the module (`chaos/sim/cut_jobs.py`).
    """
    return run_step(steps)
