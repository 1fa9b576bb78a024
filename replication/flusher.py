"""Group commit: while one sync is under way the next group gathers, and one fdatasync serves all of it."""

import asyncio
from typing import Protocol

from cordwood.replication.measures import COUNTS, SECONDS, Clock, Histogram
from cordwood.replication.syncers import Failure, Syncer
from cordwood.replication.waiters import Wakeups
from cordwood.storage.disk import Syncable
from cordwood.storage.log import Unsynced

LAZY_AFTER_S = 1.0


class Flushable(Protocol):
    """A replica as the flusher sees it."""

    def take_unsynced(self) -> Unsynced: ...

    def flushed(self, synced: Unsynced) -> None:
        """Everything of `synced` is on disk. Wakes nobody yet."""
        ...

    def announce(self) -> None:
        """Tell those who wait how far the replica has come."""
        ...

    def flush_failed(self, synced: Unsynced, error: OSError) -> None:
        """Something of `synced` did not reach the disk. Nothing of the replica is synced ever again."""
        ...

    @property
    def is_offline(self) -> bool: ...


class FlushMeasures:
    """The group commits so far."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        """From handing a group to the disks up to hearing that it is on them."""
        self.appends, self.replicas = Histogram(COUNTS), Histogram(COUNTS)
        """What one group commit served: appends, and the replicas that they went to."""


class Flusher:
    """One per broker. `touch` a replica after an append; the group that has gathered is synced at the next turn."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, syncer: Syncer, wakeups: Wakeups, clock: Clock | None = None
    ) -> None:
        """`clock` is for the measures alone; without it they are as fine as the loop's time."""
        self._loop, self._syncer, self._wakeups = loop, syncer, wakeups
        self._clock = clock or loop.time
        self.measures = FlushMeasures()
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
        self._syncing = [(replica, replica.take_unsynced()) for replica in group if not replica.is_offline]
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
            self._loop.call_soon(self._synced, [(file, error) for file in files])

    def _synced(self, failures: list[Failure]) -> None:
        self._is_busy = False
        self.measures.seconds.add(self._clock() - self._began)
        finished, self._syncing = self._syncing, []
        failed = {id(file): error for file, error in failures}
        for replica, unsynced in finished:
            error = _first_error(unsynced, failed) if failed else None
            try:
                if error is None:
                    replica.flushed(unsynced)
            except OSError as noted:
                error = noted
            if error is not None:
                replica.flush_failed(unsynced, error)
        # The next group goes to the disk before anyone is woken: it need not wait for the answers of this one.
        self._flush()
        for replica, _ in finished:
            replica.announce()
        self._wakeups.run()
        if not self._is_busy:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle_waiters.clear()


def _first_error(unsynced: Unsynced, failed: dict[int, OSError]) -> OSError | None:
    covered = (*unsynced.files, *unsynced.directories)
    return next((failed[id(file)] for file in covered if id(file) in failed), None)
