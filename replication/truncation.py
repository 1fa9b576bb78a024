"""Cuts of followers' logs, beside the loop: those that are due at the same time share their syncs.

Before a log is cut, its flush mark and its recovery point have to be lower on disk, or a crash in between would look
like a loss; that is done in a thread, with one sync of the marks for all. The cut itself is made on the loop, in memory
and in the page cache, and is sure with the next group commit: nothing that comes to stand there counts before that.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from cordwood.replication.housekeeping import RunBlocking
from cordwood.replication.tasks import Tasks
from cordwood.storage.disk import sync_directory
from cordwood.storage.errors import DamagedLog, StorageError
from cordwood.storage.state import LogState, set_back

if TYPE_CHECKING:
    from cordwood.replication.following import Following

CUTS_PER_TURN = 20
"""Made before others get a turn of the loop."""

_events = structlog.get_logger("replication")


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """What a follower gives up: all that its log has at or above `end`, or with `is_new_start` all of it."""

    following: "Following"
    end: int
    is_new_start: bool
    state: LogState | None
    """What has to be on disk before; None where that is so already."""


Done = Callable[[bool], None]
"""Told on the loop whether the log is cut; where it is not, it may be tried again."""


class Truncations:
    """Those of one broker."""

    def __init__(self, run_blocking: RunBlocking) -> None:
        self._run_blocking = run_blocking
        self._due: dict[Cut, Done] = {}
        self._running: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    def add(self, cut: Cut, done: Done) -> None:
        """Have a log cut soon. Its checkpoint is not written meanwhile, nor is anything of its leader's appended."""
        cut.following.partition.is_saving = True
        self._due[cut] = done
        if self._running is None:
            self._running = self._tasks.spawn(self._cut_all(), "truncations")

    async def close(self) -> None:
        await self._tasks.close()

    async def _cut_all(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                failures = await self._run_blocking(_prepare, list(due))
                for number, (cut, done) in enumerate(due.items(), 1):
                    done(_finish(cut, failures.get(cut)))
                    if number % CUTS_PER_TURN == 0:
                        await asyncio.sleep(0)
        finally:
            self._running = None


def _prepare(cuts: Sequence[Cut]) -> dict[Cut, Exception]:
    """In a thread: put on disk what has to be there before the cuts. What has failed, and why."""
    failures: dict[Cut, Exception] = {}
    marks: dict[str, Exception | None] = {}
    for cut in cuts:
        partition = cut.following.partition
        directory, log = partition.directory, partition.log
        try:
            if directory.path not in marks:
                marks[directory.path] = _failure(directory.marks.file.sync)
            if (failure := marks[directory.path]) is not None:
                raise failure
            if cut.is_new_start:
                # A replica that has never had a record has no directory yet.
                for changed in log.disk.make_directories(log.directory):
                    sync_directory(log.disk, changed)
            if cut.state is not None:
                set_back(log.disk, log.directory, cut.state)
        except Exception as error:
            failures[cut] = error
    return failures


def _failure(sync: Callable[[], None]) -> Exception | None:
    try:
        sync()
    except Exception as error:
        return error
    return None


def _finish(cut: Cut, failure: Exception | None) -> bool:
    following, partition = cut.following, cut.following.partition
    partition.is_saving = False
    if partition.error is None and not partition.is_deleted:
        with partition.contained():
            if partition.following is following and (cut.is_new_start or cut.end >= partition.log.log_start):
                return _make(cut, failure)
            # It has another role by now, or retention has come first: it keeps what it has.
            partition.note_flushed()
    return False


def _make(cut: Cut, failure: Exception | None) -> bool:
    partition = cut.following.partition
    log = partition.log
    try:
        if failure is not None:
            raise failure
        if cut.is_new_start:
            log.start_over(cut.end, sync=False)
            partition.was_cut()
            partition.high_watermark = cut.end
        else:
            log.truncate(cut.end, sync=False)
            partition.was_cut()
        partition.note_end(log.flushed_end, log.epochs.latest)
        partition.grown()
    except DamagedLog as damage:
        partition.damaged(damage)
        return False
    except (OSError, StorageError) as error:
        reason = partition.directory.write_failed(error)
        _events.error("replica.not_cut", topic=partition.topic, partition=partition.index, reason=str(reason))
        return False
    return True
