"""Truncation of replicas' logs: those due in a log directory at the same time share their syncs.

Before a truncation, the flushed end and the recovery point of the log must be lower on disk: a crash in between would
look like a loss otherwise. A thread writes them, with one sync of the flushed-offsets file for all logs. The truncation
itself runs on the event loop, in memory and in the page cache. A truncation has ended once a group commit has made it
durable: if batches were appended before that, a power cut could leave some of the old ones among them.

A log that is removed whole and begins again elsewhere is another log. Its checkpoint is written only after the removal
is durable, so that a crash never leaves the batches of one log with the leader epochs of another. Until then the flush
mark is 0.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.tasks import Tasks
from cordwood.storage.disk import sync_directory
from cordwood.storage.errors import DamagedLog, OutOfResources, StorageError
from cordwood.storage.producers import Producers
from cordwood.storage.state import (
    ArchivedBeginning,
    LogState,
    lower_checkpoint,
    state_of_new_log,
    write_new_log,
)
from cordwood.storage.transaction_log import must_read_again
from cordwood.storage.truncation_plan import (
    flushed_end_before_truncation,
    producers_before_truncation,
    state_before_full_truncation,
    state_before_truncation,
)

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

TRUNCATIONS_PER_TURN = 20
"""Truncations made before the event loop runs other work."""
AGAIN_AFTER_S = 1.0
"""Delay before the checkpoint of a log that begins anew is written again, after an error."""
PRODUCERS_ON_LOOP_MAX = 200
"""Producers of a log whose checkpoint before a truncation is made on the event loop: some 3 ms."""

_events = structlog.get_logger("replication")


@dataclass(slots=True, eq=False)
class Truncation:
    """Truncation of a replica's log: everything at or above `end`, or with `is_full` the whole log."""

    partition: "Partition"
    end: int
    is_full: bool
    is_wanted: Callable[[], bool]
    """Called right before the truncation: whether the replica still has the role that requires it."""
    state: LogState | None = None
    """Checkpoint that must be on disk before the truncation, None if it already is; after it, that of a new log."""
    is_long: bool = False
    """Whether `prepare` makes the checkpoint: batches have to be read, or there are many producers."""
    again: Producers | None = None
    """What `prepare` has read: the transactional producers at `end`."""
    before: ArchivedBeginning | None = None
    """What only the archive has of a log that is removed whole."""


Failures = dict[Truncation, Exception]
OnTruncated = Callable[[bool], None]
"""Called on the event loop with whether the log was truncated. If it was not, a retry is possible."""


def truncation_to(partition: "Partition", end: int, is_wanted: Callable[[], bool]) -> Truncation:
    """Return a truncation, with the flushed end already lowered. Raises OSError, StorageError."""
    log = partition.log
    is_long = must_read_again(log.producers, end) or len(log.producers) > PRODUCERS_ON_LOOP_MAX
    state = None if is_long else state_before_truncation(log, end)
    _lower_flush_mark(partition, flushed_end_before_truncation(log, end))
    return Truncation(partition, end, is_full=False, is_wanted=is_wanted, state=state, is_long=is_long)


def full_truncation(
    partition: "Partition", offset: int, is_wanted: Callable[[], bool], before: ArchivedBeginning | None = None
) -> Truncation:
    """Return a removal of the whole log, after which it begins at `offset`. Otherwise as `truncation_to`.

    `before` is what only the archive has of the log.
    """
    _lower_flush_mark(partition, 0)
    return Truncation(partition, offset, is_full=True, is_wanted=is_wanted, before=before)


def _lower_flush_mark(partition: "Partition", end: int) -> None:
    partition.truncating_to = end
    try:
        partition.note_flushed()
    except OSError:
        partition.truncating_to = None
        raise


class Truncations:
    """Pending truncations of one broker."""

    def __init__(self) -> None:
        self._due: dict[LogDirectory, dict[Truncation, OnTruncated]] = {}
        self._running: set[LogDirectory] = set()
        self._writing: set[asyncio.Future[Failures]] = set()
        self._tasks = Tasks()

    def add(self, truncation: Truncation, done: OnTruncated) -> None:
        """Truncate a log soon. Until then its checkpoint is not written, and nothing may be appended to it."""
        directory = truncation.partition.directory
        truncation.partition.is_checkpoint_locked = True
        self._due.setdefault(directory, {})[truncation] = done
        if directory not in self._running:
            self._running.add(directory)
            self._tasks.spawn(self._truncate_all(directory), f"truncations in {directory.path}")

    async def truncate(self, truncation: Truncation) -> bool:
        """Truncate a log, as `add`. Return whether it was truncated."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def ended(is_truncated: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_truncated)

        self.add(truncation, ended)
        return await outcome

    async def close(self) -> None:
        """Make no more truncations. Returns once no thread writes for one."""
        await self._tasks.close()
        if self._writing:
            await asyncio.wait(self._writing)

    async def _truncate_all(self, directory: LogDirectory) -> None:
        try:
            while due := self._due.pop(directory, None):
                failures = await self._in_thread(directory, prepare, list(due))
                truncated = set()
                for number, truncation in enumerate(due, 1):
                    if finish(truncation, failures.get(truncation)):
                        truncated.add(truncation)
                    if number % TRUNCATIONS_PER_TURN == 0:
                        await asyncio.sleep(0)
                await directory.remove_discarded()
                await directory.flusher.group_flushed()
                if anew := {one: due.pop(one) for one in list(due) if one.is_full and one.partition.log.begins_anew}:
                    # Apart: nothing else in the directory waits for one that lacks resources.
                    self._tasks.spawn(self._begin_anew(directory, anew), f"new logs in {directory.path}")
                for number, (truncation, done) in enumerate(due.items(), 1):
                    is_truncated = truncation in truncated and not truncation.partition.is_offline
                    _call(truncation, done, is_truncated=is_truncated)
                    if number % TRUNCATIONS_PER_TURN == 0:
                        await asyncio.sleep(0)
        finally:
            self._running.discard(directory)

    async def _begin_anew(self, directory: LogDirectory, due: dict[Truncation, OnTruncated]) -> None:
        """Write the checkpoints of new logs, those that fail for lack of resources again and again."""
        while due:
            writable = [truncation for truncation in due if truncation.partition.is_writable]
            removed = [truncation for truncation in writable if not truncation.partition.log.has_unsynced_truncation]
            failures = await self._in_thread(directory, write_new_checkpoints, removed) if removed else {}
            for truncation in removed:
                begun_anew(truncation, failures.get(truncation))
            for number, truncation in enumerate(list(due), 1):
                partition = truncation.partition
                if not (partition.is_writable and partition.log.begins_anew):
                    partition.is_checkpoint_locked = False
                    _call(truncation, due.pop(truncation), is_truncated=partition.is_writable)
                if number % TRUNCATIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if due:
                await asyncio.sleep(AGAIN_AFTER_S)

    async def _in_thread(
        self,
        directory: LogDirectory,
        write: Callable[[Sequence[Truncation]], Failures],
        truncations: Sequence[Truncation],
    ) -> Failures:
        writing: asyncio.Future[Failures] = asyncio.ensure_future(directory.run_blocking(write, truncations))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            return await asyncio.shield(writing)
        except Exception as error:
            # The thread did not begin, for example for lack of threads: `write` raises nothing. No truncation may be
            # forgotten for that.
            return dict.fromkeys(truncations, OutOfResources(f"the thread did not begin: {error!r}"))


def prepare(truncations: Sequence[Truncation]) -> Failures:
    """Write what must be on disk before truncations in one directory. Return those that failed, and why. Blocks."""
    failures: Failures = {}
    directory = truncations[0].partition.directory
    try:
        directory.flushed_offsets.file.sync()
    except Exception as error:
        return dict.fromkeys(truncations, error)
    for truncation in truncations:
        log = truncation.partition.log
        try:
            if truncation.is_full:
                # A replica without a first record has no directory yet.
                for changed in log.disk.make_directories(log.directory):
                    sync_directory(log.disk, changed)
                truncation.state = state_before_full_truncation(log)
            elif truncation.is_long:
                truncation.again = producers_before_truncation(log, truncation.end)
                truncation.state = state_before_truncation(log, truncation.end, truncation.again)
            if truncation.state is not None:
                lower_checkpoint(log.disk, log.directory, truncation.state)
        except Exception as error:
            failures[truncation] = error
    return failures


def write_new_checkpoints(truncations: Sequence[Truncation]) -> Failures:
    """Write the checkpoints of new logs. Return those that failed, and why. Blocks."""
    failures: Failures = {}
    for truncation in truncations:
        log = truncation.partition.log
        try:
            assert truncation.state is not None, "it is that of the new log"
            write_new_log(log.disk, log.directory, truncation.state)
        except Exception as error:
            failures[truncation] = error
    return failures


def begun_anew(truncation: Truncation, failure: Exception | None = None) -> None:
    """Record that the checkpoint of a new log is on disk, unless that failed."""
    partition = truncation.partition
    if not partition.is_writable:
        return
    try:
        with partition.contained():
            if failure is not None:
                raise failure
            partition.truncating_to = None
            partition.log.begun_anew()
            partition.note_flushed()
            partition.announce()
            partition.log_start_flushed()
    except (OSError, StorageError) as error:
        _log_failure(partition, error, "checkpoint.not_written")


def finish(truncation: Truncation, failure: Exception | None = None) -> bool:
    """Truncate the log, unless its preparation failed. Return whether it was truncated."""
    partition = truncation.partition
    partition.is_checkpoint_locked, partition.truncating_to = False, None
    if partition.is_writable:
        try:
            with partition.contained():
                if truncation.is_wanted() and (truncation.is_full or truncation.end >= partition.log.local_start):
                    return _truncate(truncation, failure)
                # The replica has another role by now, or retention came first: its log stays as it is.
                _take_back(partition)
                partition.note_flushed()
        except (OSError, StorageError) as error:
            partition.directory.write_failed(error)
    return False


def _take_back(partition: "Partition") -> None:
    """Have a checkpoint written soon: a preparation has lowered the recovery point on disk."""
    partition.log.listed_end = 0
    partition.directory.uncheckpointed[partition] = None
    partition.directory.has_unsynced_marks = True


def _truncate(truncation: Truncation, failure: Exception | None) -> bool:
    partition = truncation.partition
    log = partition.log
    if isinstance(failure, DamagedLog):
        partition.report_damage(failure)
        return False
    if failure is not None:
        return _truncation_failed(partition, failure)
    try:
        if truncation.is_full:
            truncation.state = state_of_new_log(truncation.end, truncation.before)
            log.truncate_fully(truncation.end, truncation.before)
            partition.is_checkpoint_locked, partition.truncating_to = True, 0
        else:
            log.truncate(truncation.end, truncation.again)
            partition.report_lacking_producers()
        partition.truncated()
        # Also with flush.policy=os: what follows waits for this flush.
        partition.directory.flusher.touch(partition)
        partition.note_flushed()
    except DamagedLog as damage:
        partition.report_damage(damage)
        return False
    except (OSError, StorageError) as error:
        return _truncation_failed(partition, error)
    return True


def _truncation_failed(partition: "Partition", error: Exception) -> bool:
    """Log an error of any kind. A retry is possible, unless the disk is broken."""
    _log_failure(partition, error, "replica.not_cut")
    _take_back(partition)
    return False


def _log_failure(partition: "Partition", error: Exception, event: str) -> None:
    reason = partition.directory.write_failed(error) if isinstance(error, OSError | StorageError) else error
    _events.error(event, topic=partition.topic, partition=partition.index, reason=str(reason))


def _call(truncation: Truncation, done: OnTruncated, *, is_truncated: bool) -> None:
    try:
        done(is_truncated)
    except Exception as error:
        # The other callbacks are still called.
        truncation.partition.fail(error)
