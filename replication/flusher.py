"""Group commit of a log directory: while one sync is under way the next group gathers, and one serves all of it."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from cordwood.replication.measures import COUNTS, SECONDS, Clock, Histogram
from cordwood.replication.syncers import Failure, Syncer
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.disk import Syncable
from cordwood.storage.errors import SyncFailed
from cordwood.storage.unsynced import Unsynced

LAZY_AFTER_S = 1.0
AGAIN_AFTER_S = 0.1
"""What could not be synced for lack of resources joins a group again after this."""


class Flushable(Protocol):
    """A replica as the flusher sees it."""

    is_deleted: bool

    def take_unsynced(self) -> Unsynced:
        """What the next group syncs. Raises OSError, having taken nothing out."""
        ...

    def flushed(self, synced: Unsynced) -> None:
        """Everything of `synced` is on disk. Wakes nobody yet. Raises OSError where that cannot be noted."""
        ...

    def may_flush_again(self, error: OSError) -> bool:
        """Nothing was lost. Return whether to try again in a while; otherwise the replica is offline."""
        ...

    def announce(self) -> None:
        """Tell those who wait how far the replica has come."""
        ...

    def flush_failed(self, synced: Unsynced, error: OSError) -> None:
        """Something of `synced` did not reach the disk. Nothing of the replica is synced ever again."""
        ...

    def fail(self, error: Exception) -> None:
        """Something was raised in the work of this replica: it alone goes offline for it."""
        ...

    @property
    def is_offline(self) -> bool: ...


class FlushMeasures:
    """The group commits of a broker so far."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        """From handing a group to the disks up to hearing that it is on them."""
        self.appends, self.replicas = Histogram(COUNTS), Histogram(COUNTS)
        """What one group commit served: appends, and the replicas that they went to."""


class Flusher:
    """One per log directory, so that an acknowledgement waits for its own disk alone.

    `touch` a replica after an append; the group that has gathered is synced at the next turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        syncer: Syncer,
        end_of_tick: EndOfTickScheduler,
        clock: Clock | None = None,
        measures: FlushMeasures | None = None,
    ) -> None:
        """`clock` is for the measures alone; without it they are as fine as the loop's time."""
        self._loop, self._syncer, self._end_of_tick = loop, syncer, end_of_tick
        self._clock = clock or loop.time
        self.measures = measures or FlushMeasures()
        self._appends, self._began = 0, 0.0
        self._gathering: dict[Flushable, None] = {}
        self._lazy: dict[Flushable, None] = {}
        self._syncing: list[tuple[Flushable, Unsynced]] = []
        self._is_busy = self._is_scheduled = False
        self._idle_waiters: list[asyncio.Future[None]] = []

    def touch(self, replica: Flushable) -> None:
        """The replica has something that is not on disk yet."""
        self._gathering[replica] = None
        self._appends += 1
        if not self._is_scheduled and not self._is_busy:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def touch_later(self, replica: Flushable) -> None:
        """As `touch`, but nobody waits for it: the replica joins a group within a second."""
        if not self._lazy:
            self._loop.call_later(LAZY_AFTER_S, self._touch_lazy)
        self._lazy[replica] = None

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        self._touch_lazy()
        while self._is_busy or self._gathering:
            waiter = self._loop.create_future()
            self._idle_waiters.append(waiter)
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
        self._syncing = self._take(group)
        self.measures.replicas.add(len(group))
        self.measures.appends.add(self._appends)
        self._appends, self._began = 0, self._clock()
        files: list[Syncable] = []
        for _, unsynced in self._syncing:
            files += unsynced.files
            files += unsynced.directories
        try:
            self._syncer.sync(files, self._synced)
        except OSError as error:
            # Some of it may be under way. What was taken is not synced a second time.
            failed: OSError = SyncFailed(error.errno, error.strerror)
            self._loop.call_soon(self._synced, [(file, failed) for file in files])

    def _take(self, group: Iterable[Flushable]) -> list[tuple[Flushable, Unsynced]]:
        """What each replica has to be synced. One that cannot say stands back alone."""
        taken = []
        for replica in group:
            if replica.is_offline or replica.is_deleted:
                continue
            try:
                taken.append((replica, replica.take_unsynced()))
            except OSError as error:
                self._try_again(replica, error)
            except Exception as broken:
                replica.fail(broken)
        return taken

    def _try_again(self, replica: Flushable, error: OSError) -> None:
        if replica.may_flush_again(error):
            self._lazy[replica] = None
            self._loop.call_later(AGAIN_AFTER_S, self._touch_lazy)

    def _synced(self, failures: list[Failure]) -> None:
        self._is_busy = False
        self.measures.seconds.add(self._clock() - self._began)
        finished, self._syncing = self._syncing, []
        failed = {id(file): error for file, error in failures}
        for replica, unsynced in finished:
            error = _first_error(unsynced, failed) if failed else None
            if error is not None:
                replica.flush_failed(unsynced, error)
                continue
            try:
                replica.flushed(unsynced)
            except OSError as not_noted:
                self._try_again(replica, not_noted)
            except Exception as broken:
                replica.fail(broken)
        # The next group goes to the disk before anyone is woken: it need not wait for the answers of this one.
        self._flush()
        for replica, _ in finished:
            try:
                replica.announce()
            except Exception as broken:
                replica.fail(broken)
        self._end_of_tick.run()
        if not self._is_busy and self._idle_waiters:
            self._is_idle()

    def _is_idle(self) -> None:
        for waiter in self._idle_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._idle_waiters.clear()


def _first_error(unsynced: Unsynced, failed: dict[int, OSError]) -> OSError | None:
    covered = (*unsynced.files, *unsynced.directories)
    return next((failed[id(file)] for file in covered if id(file) in failed), None)
