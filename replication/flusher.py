"""Group commit of a log directory: while one sync runs, the next group gathers, and one sync covers all of it."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cordwood.replication.measures import COUNTS, SECONDS, Clock, Histogram
from cordwood.replication.syncers import Failure, Syncer
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.disk import Syncable
from cordwood.storage.errors import SyncFailed
from cordwood.storage.pending_flush import PendingFlush

if TYPE_CHECKING:
    from cordwood.replication.partition import Partition

LAZY_AFTER_S = 1.0
AGAIN_AFTER_S = 0.1
"""Delay before a replica whose sync lacked resources joins a group again."""


class FlushMeasures:
    """Metrics of a broker's group commits."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        """Time from submitting a group to the disks until all of it is on them."""
        self.appends, self.replicas = Histogram(COUNTS), Histogram(COUNTS)
        """Appends that one group commit covered, and their replicas."""


class Flusher:
    """Group commit of one log directory, so that an acknowledgement waits for its own disk only.

    `touch` a replica after an append; the gathered group is synced in the next event-loop iteration.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        syncer: Syncer,
        end_of_tick: EndOfTickScheduler,
        clock: Clock | None = None,
        measures: FlushMeasures | None = None,
    ) -> None:
        """`clock` is used for metrics only; by default it is the event loop's time."""
        self._loop, self._syncer, self._end_of_tick = loop, syncer, end_of_tick
        self._clock = clock or loop.time
        self.measures = measures or FlushMeasures()
        self._appends, self._began = 0, 0.0
        self._gathering: dict[Partition, None] = {}
        self._lazy: dict[Partition, None] = {}
        self._flushing: list[tuple[Partition, PendingFlush]] = []
        self._is_busy = self._is_scheduled = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._gathering_waiters: list[asyncio.Future[None]] = []
        self._flushing_waiters: list[asyncio.Future[None]] = []

    def touch(self, replica: "Partition") -> None:
        """Add a replica with unsynced appends to the next group."""
        self._gathering[replica] = None
        self._appends += 1
        if not self._is_scheduled and not self._is_busy:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def touch_later(self, replica: "Partition") -> None:
        """Add a replica whose sync no request waits for: it joins a group within a second."""
        if not self._lazy:
            self._loop.call_later(LAZY_AFTER_S, self._touch_lazy)
        self._lazy[replica] = None

    async def group_flushed(self) -> None:
        """Wait until each replica touched so far has been in a group that has ended, flushed or failed."""
        if self._gathering:
            await self._wait_in(self._gathering_waiters)
        elif self._is_busy:
            await self._wait_in(self._flushing_waiters)

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        self._touch_lazy()
        while self._is_busy or self._gathering:
            await self._wait_in(self._idle_waiters)

    async def _wait_in(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter = self._loop.create_future()
        waiters.append(waiter)
        await waiter

    def _touch_lazy(self) -> None:
        lazy, self._lazy = self._lazy, {}
        for replica in lazy:
            self.touch(replica)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._is_busy or not self._gathering:
            return
        self._is_busy = True
        group, self._gathering = self._gathering, {}
        self._flushing_waiters, self._gathering_waiters = self._gathering_waiters, []
        self._flushing = self._take(group)
        self.measures.replicas.add(len(group))
        self.measures.appends.add(self._appends)
        self._appends, self._began = 0, self._clock()
        files: list[Syncable] = []
        for _, pending in self._flushing:
            files += pending.files
            files += pending.directories
        try:
            self._syncer.sync(files, self._group_flushed)
        except OSError as error:
            # A part may be submitted already. A failed group is not synced a second time.
            failed: OSError = SyncFailed(error.errno, error.strerror)
            self._loop.call_soon(self._group_flushed, [(file, failed) for file in files])

    def _take(self, group: Iterable["Partition"]) -> "list[tuple[Partition, PendingFlush]]":
        """Take what each replica has to sync. A replica that raises is left out alone."""
        taken = []
        for replica in group:
            if replica.is_offline or replica.is_deleted or replica.flusher is not self:
                # A replica that moves to another log directory is flushed again after the move.
                continue
            try:
                taken.append((replica, replica.begin_flush()))
            except OSError as error:
                self._try_again(replica, error)
            except Exception as broken:
                replica.fail(broken)
        return taken

    def _try_again(self, replica: "Partition", error: OSError) -> None:
        if replica.may_flush_again(error):
            self._lazy[replica] = None
            self._loop.call_later(AGAIN_AFTER_S, self._touch_lazy)

    def _group_flushed(self, failures: list[Failure]) -> None:
        self._is_busy = False
        self.measures.seconds.add(self._clock() - self._began)
        finished, self._flushing = self._flushing, []
        failed = {id(file): error for file, error in failures}
        for replica, pending in finished:
            error = _first_error(pending, failed) if failed else None
            if error is not None:
                replica.flush_failed(pending, error)
                continue
            try:
                replica.flushed(pending)
            except OSError as not_noted:
                self._try_again(replica, not_noted)
            except Exception as broken:
                replica.fail(broken)
        _complete(self._flushing_waiters)
        # The next group is submitted before any waiter is completed: it need not wait for the responses of this one.
        self._flush()
        for replica, _ in finished:
            try:
                replica.announce()
            except Exception as broken:
                replica.fail(broken)
        self._end_of_tick.run()
        if not self._is_busy:
            _complete(self._idle_waiters)


def _complete(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def _first_error(pending: PendingFlush, failed: dict[int, OSError]) -> OSError | None:
    covered = (*pending.files, *pending.directories)
    return next((failed[id(file)] for file in covered if id(file) in failed), None)
