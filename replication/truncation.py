"""Truncation of replicas' logs: those due in a log directory at the same time share their syncs.

Before a truncation, the flushed end and the recovery point of the log must be lower on disk, or a crash in between
would look like a loss; a thread does that, with one sync of the flushed-offsets file for all. The truncation itself
runs on the event loop, in memory and in the page cache, and is durable with the next group commit: batches that are
appended afterwards do not count before that.
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
from cordwood.storage.state import LogState, set_back, state_of_new_log
from cordwood.storage.types import NO_EPOCH

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

CUTS_PER_TURN = 20
"""Truncations made before the event loop runs other work."""

_events = structlog.get_logger("replication")


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Truncation of a replica's log: everything at or above `end`, or with `is_new_start` the whole log."""

    partition: "Partition"
    end: int
    is_new_start: bool
    state: LogState | None
    """Checkpoint that must be on disk before; None if it already is."""
    is_wanted: Callable[[], bool]
    """Called right before the truncation: whether the replica still has the role that requires it."""


Done = Callable[[bool], None]
"""Called on the event loop with whether the log was truncated. If it was not, a retry is possible."""


def cut_at(partition: "Partition", end: int, is_wanted: Callable[[], bool]) -> Cut:
    """Return a truncation, with the flushed end already lowered. Raises OSError, StorageError."""
    log = partition.log
    state = log.state_before_cut(end)
    lower_mark(partition, end)
    return Cut(partition, end, is_new_start=False, state=state, is_wanted=is_wanted)


def cut_of_all(partition: "Partition", offset: int, is_wanted: Callable[[], bool]) -> Cut:
    """Return a removal of the whole log, after which it begins at `offset`. Otherwise as `cut_at`."""
    partition.note_end(0, NO_EPOCH)
    return Cut(partition, offset, is_new_start=True, state=state_of_new_log(offset), is_wanted=is_wanted)


def lower_mark(partition: "Partition", end: int) -> None:
    """Lower the flushed end on disk to `end`: a crash must not make the truncation look like a loss."""
    log = partition.log
    partition.note_end(min(end, log.flushed_end), log.epochs.epoch_at(end - 1))


class Truncations:
    """Pending truncations of one broker."""

    def __init__(self) -> None:
        self._due: dict[LogDirectory, dict[Cut, Done]] = {}
        self._running: set[LogDirectory] = set()
        self._preparing: set[asyncio.Future[dict[Cut, Exception]]] = set()
        self._tasks = Tasks()

    def add(self, cut: Cut, done: Done) -> None:
        """Truncate a log soon. Until then its checkpoint is not written, and nothing may be appended to it."""
        directory = cut.partition.directory
        cut.partition.is_saving = True
        self._due.setdefault(directory, {})[cut] = done
        if directory not in self._running:
            self._running.add(directory)
            self._tasks.spawn(self._cut_all(directory), f"truncations in {directory.path}")

    async def make(self, cut: Cut) -> bool:
        """Truncate a log, as `add`. Return whether it was truncated."""
        is_cut: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def ended(is_made: bool) -> None:
            if not is_cut.done():
                is_cut.set_result(is_made)

        self.add(cut, ended)
        return await is_cut

    async def close(self) -> None:
        """Make no more truncations. Returns once no thread writes for one."""
        await self._tasks.close()
        if self._preparing:
            await asyncio.wait(self._preparing)

    async def _cut_all(self, directory: LogDirectory) -> None:
        try:
            while due := self._due.pop(directory, None):
                failures = await self._prepared(directory, list(due))
                for number, (cut, done) in enumerate(due.items(), 1):
                    _tell(cut, done, is_cut=finish(cut, failures.get(cut)))
                    if number % CUTS_PER_TURN == 0:
                        await asyncio.sleep(0)
        finally:
            self._running.discard(directory)

    async def _prepared(self, directory: LogDirectory, cuts: Sequence[Cut]) -> dict[Cut, Exception]:
        preparing = asyncio.ensure_future(directory.run_blocking(prepare, cuts))
        self._preparing.add(preparing)
        preparing.add_done_callback(self._preparing.discard)
        try:
            failures: dict[Cut, Exception] = await asyncio.shield(preparing)
        except Exception as error:
            # The thread did not begin, for example for lack of threads. No truncation may be forgotten for that.
            return dict.fromkeys(cuts, OutOfResources(f"no log could be truncated: {error!r}"))
        return failures


def prepare(cuts: Sequence[Cut]) -> dict[Cut, Exception]:
    """Write what must be on disk before truncations in one directory. Return those that failed, and why. Blocks."""
    failures: dict[Cut, Exception] = {}
    directory = cuts[0].partition.directory
    try:
        directory.flushed_offsets.file.sync()
    except Exception as error:
        return dict.fromkeys(cuts, error)
    for cut in cuts:
        log = cut.partition.log
        try:
            if cut.is_new_start:
                # A replica without a first record has no directory yet.
                for changed in log.disk.make_directories(log.directory):
                    sync_directory(log.disk, changed)
            if cut.state is not None:
                set_back(log.disk, log.directory, cut.state)
        except Exception as error:
            failures[cut] = error
    return failures


def finish(cut: Cut, failure: Exception | None = None) -> bool:
    """Truncate the log, unless its preparation failed. Return whether it was truncated."""
    partition = cut.partition
    partition.is_saving = False
    if partition.error is None and not partition.is_deleted:
        with partition.contained():
            if cut.is_wanted() and (cut.is_new_start or cut.end >= partition.log.log_start):
                return _make(cut, failure)
            # The replica has another role by now, or retention came first: its log stays as it is.
            partition.note_flushed()
    return False


def _make(cut: Cut, failure: Exception | None) -> bool:
    partition = cut.partition
    log = partition.log
    if failure is not None:
        return _not_cut(partition, failure)
    try:
        if cut.is_new_start:
            log.start_over(cut.end)
            partition.was_cut()
            partition.high_watermark = cut.end
        else:
            log.truncate(cut.end)
            partition.was_cut()
        partition.note_end(log.flushed_end, log.epochs.latest)
        partition.grown()
    except DamagedLog as damage:
        partition.damaged(damage)
        return False
    except (OSError, StorageError) as error:
        return _not_cut(partition, error)
    return True


def _not_cut(partition: "Partition", error: Exception) -> bool:
    """Log an error of any kind. A retry is possible, unless the disk is broken."""
    reason = partition.directory.write_failed(error) if isinstance(error, OSError | StorageError) else error
    _events.error("replica.not_cut", topic=partition.topic, partition=partition.index, reason=str(reason))
    return False


def _tell(cut: Cut, done: Done, *, is_cut: bool) -> None:
    try:
        done(is_cut)
    except Exception as error:
        # The other callbacks are still called.
        cut.partition.fail(error)
