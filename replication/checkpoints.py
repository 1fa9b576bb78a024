"""Checkpoints of a broker's logs, written in the background: a restart reads only what came after them."""

import asyncio
from collections.abc import Sequence
from functools import partial

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.partition import Partition
from cordwood.replication.tasks import Tasks
from cordwood.storage.errors import StorageError
from cordwood.storage.state import write_checkpoint

CHECKPOINT_INTERVAL_S = 1.0
CHECKPOINT_AGE_S = 10.0
CHECKPOINT_BYTES = 64 << 20
"""A log is checkpointed after so many new bytes, or CHECKPOINT_AGE_S after the last time, once it is its turn.

Sooner if a segment was closed: recovery takes damage to it for a torn write until a manifest lists it (disk rule 10).
"""
CHECKPOINTS_PER_ROUND = 20
"""Logs of a directory that take turns in one round, of thousands: a restart reads a little more of each.

The largest do not wait.
"""
SMALL_BYTES = 1 << 20
"""A log with fewer new bytes is small: a restart has little to read again."""
SMALL_CHECKPOINTS_PER_ROUND = 5
"""Small logs that take turns in one round: a checkpoint syncs two files, and group commits wait for each."""
TRUNCATION_POLL_S = 0.01


class Checkpoints:
    """Checkpoints of all logs in these directories."""

    def __init__(self, directories: Sequence[LogDirectory], tasks: Tasks) -> None:
        """`tasks` belong to the owner, which closes them before `stop`."""
        self._tasks = tasks
        self._dirty_since: dict[Partition, float] = {}
        self._locks = {directory: asyncio.Lock() for directory in directories}
        self._running: set[asyncio.Future[None]] = set()
        self._due: dict[LogDirectory, dict[Partition, None]] = {directory: {} for directory in directories}
        self._writing: set[LogDirectory] = set()

    def start(self, directory: LogDirectory) -> None:
        """Begin to write the checkpoints of one directory."""
        self._tasks.repeat(partial(self._write_later, directory), f"checkpoints in {directory.path}")

    async def stop(self) -> None:
        """Wait for the checkpoints that threads are writing."""
        if self._running:
            await asyncio.wait(self._running)

    def forget(self, partition: Partition) -> None:
        """Forget a removed partition."""
        self._dirty_since.pop(partition, None)

    async def write(self, partition: Partition) -> None:
        """Checkpoint one log now. Raises OutOfResources, after which the log is still due, and DiskFailed."""
        directory = partition.directory
        # One at a time: a checkpoint is staged in one file, and an older one must not replace a newer.
        async with self._locks[directory]:
            while partition.is_checkpoint_locked and partition.log.segments:
                # A truncation of the log is pending. A log without segments has no checkpoint to wait for.
                await asyncio.sleep(TRUNCATION_POLL_S)
            directory.uncheckpointed.pop(partition, None)
            if not partition.log.segments or partition.is_deleted:
                return
            try:
                await self._write(partition)
            except OSError as error:
                if not partition.is_deleted:
                    # Last in the queue: the other logs come first.
                    directory.uncheckpointed[partition] = None
                    raise directory.write_failed(error) from error

    async def _write(self, partition: Partition) -> None:
        log, new_bytes = partition.log, partition.log.uncheckpointed_bytes
        state = log.state()
        partition.is_checkpoint_locked = True
        under_way = asyncio.ensure_future(
            partition.directory.run_blocking(write_checkpoint, log.disk, log.directory, state)
        )

        def ended(future: "asyncio.Future[None]") -> None:
            # Runs even if the caller was cancelled meanwhile.
            self._running.discard(future)
            partition.is_checkpoint_locked = False
            log.producers.encoded()
            if not future.cancelled() and future.exception() is None:
                has_moved = state.log_start != log.flushed_start
                log.checkpoint_written(state)
                if has_moved:
                    partition.log_start_flushed()
            else:
                log.uncheckpointed_bytes += new_bytes

        under_way.add_done_callback(ended)
        self._running.add(under_way)
        await asyncio.shield(under_way)

    def write_soon(self, partition: Partition) -> None:
        """Checkpoint one log in the background, as soon as the logs before it are checkpointed."""
        directory = partition.directory
        self._due[directory][partition] = None
        if directory not in self._writing:
            self._writing.add(directory)
            self._tasks.spawn(self._write_waited_for(directory), "checkpoints that are waited for")

    async def _write_waited_for(self, directory: LogDirectory) -> None:
        due = self._due[directory]
        try:
            while due:
                partition = next(iter(due))
                del due[partition]
                try:
                    with partition.contained():
                        await self.write(partition)
                except (OSError, StorageError) as error:
                    directory.report_not_done("checkpoint", error)
        finally:
            self._writing.discard(directory)

    async def _write_later(self, directory: LogDirectory) -> None:
        await asyncio.sleep(CHECKPOINT_INTERVAL_S)
        if not directory.is_offline and (directory.uncheckpointed or directory.has_unsynced_marks):
            await self._write_due(directory, asyncio.get_running_loop().time())

    async def _write_due(self, directory: LogDirectory, now: float) -> None:
        try:
            turns, small_turns = CHECKPOINTS_PER_ROUND, SMALL_CHECKPOINTS_PER_ROUND
            for partition in list(directory.uncheckpointed):
                since = self._dirty_since.setdefault(partition, now)
                log, is_old = partition.log, now - since >= CHECKPOINT_AGE_S
                is_small = log.uncheckpointed_bytes < SMALL_BYTES and not log.has_unlisted_segments
                is_due = is_old or log.has_unlisted_segments
                takes_its_turn = is_due and (small_turns if is_small else turns) > 0
                if takes_its_turn or log.uncheckpointed_bytes >= CHECKPOINT_BYTES:
                    with partition.contained():
                        await self.write(partition)
                    self._dirty_since.pop(partition, None)
                    if is_small:
                        small_turns -= 1
                    else:
                        turns -= 1
                    directory.has_unsynced_marks = True
        except (OSError, StorageError) as error:
            directory.report_not_done("checkpoint", error)
        # Every sync of another file delays concurrent group commits: one per second would show in their p99.
        if directory.has_unsynced_marks and not directory.is_offline:
            await self._sync_marks(directory)

    async def _sync_marks(self, directory: LogDirectory) -> None:
        directory.has_unsynced_marks = False
        try:
            await directory.run_blocking(directory.flushed_offsets.file.sync)
        except (OSError, StorageError) as error:
            directory.report_not_done("flush marks", error)
