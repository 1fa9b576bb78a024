"""One replica of a partition: its log, how far it is committed, and who waits for that."""

import asyncio
import errno
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from cordwood.replication.flusher import Flusher
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.waiters import OffsetWaiters, Waiter, Wakeups, Watcher
from cordwood.storage.admission import admit
from cordwood.storage.batch import check
from cordwood.storage.config import FlushPolicy, LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DiskFailed, DiskFull
from cordwood.storage.log import Appended, Log, Unsynced

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that say nothing against the disk: once there is room again, it goes on."""


class Refusal(Enum):
    """Why a partition does not serve a request."""

    UNKNOWN = "no such partition here"
    UNKNOWN_ID = "no topic has this id"
    NOT_LEADER = "another broker leads this partition"
    FENCED_EPOCH = "the leader epoch asked for is older than the partition's"
    UNKNOWN_EPOCH = "the leader epoch asked for is newer than this broker has heard of"
    OFFLINE = "the partition's log directory is offline"
    DELETED = "the partition was deleted"


class PartitionRefused(Exception):
    """An expected outcome: the partition cannot do what was asked here and now."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Place(NamedTuple):
    """Which partition of which topic."""

    topic: str
    partition: int
    topic_id: UUID


class Partition:
    """The replica of one partition on this broker, which leads it.

    `high_watermark` is the end of what is committed: on disk on every in-sync replica, which here is this one. With
    `flush.policy=os` a record counts as soon as the operating system has it.
    """

    def __init__(
        self, place: Place, log: Log, directory: LogDirectory, flusher: Flusher, wakeups: Wakeups, leader_epoch: int
    ) -> None:
        self.topic, self.index, self.topic_id = place
        self.log, self.directory = log, directory
        self.leader_epoch = leader_epoch
        self.high_watermark = log.flushed_end
        self.watchers: dict[Watcher, None] = {}
        self._flusher, self._wakeups = flusher, wakeups
        self._waiters = OffsetWaiters()
        self._mark_slot = directory.marks.slot(place.topic_id, place.partition)
        self._topic_id_bytes = place.topic_id.bytes
        self.is_deleted = False

    @property
    def config(self) -> LogConfig:
        return self.log.config

    def append(self, batch: Bytes, now_ms: int) -> Appended:
        """Take one batch from a client into memory, to be flushed with the next group.

        Raises what `check`, `admit` and `Log.append` raise; DiskFull where there is no room, DiskFailed where the disk
        no longer takes writes.
        """
        header = check(batch)
        admit(batch, header, self.log.config, now_ms)
        if self.directory.error is not None:
            raise DiskFailed(str(self.directory.error))
        try:
            appended = self.log.append(batch, header, self.leader_epoch, now_ms)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFull(f"{self.directory.path} has no room for {len(batch)} more bytes") from error
            self.directory.fail(error)
            raise DiskFailed(str(error)) from error
        if not appended.is_duplicate:
            if self.log.config.flush_policy is FlushPolicy.OS:
                self._flusher.touch_later(self)
                self._advance()
            else:
                self._flusher.touch(self)
        return appended

    def when_committed(self, end: int, waiter: Waiter) -> bool:
        """Have `waiter` told when everything below `end` is committed. False if it is already, and nobody is told."""
        if end <= self.high_watermark:
            return False
        self._waiters.add(end, waiter)
        return True

    async def append_committed(self, batch: bytes, now_ms: int) -> int:
        """Append a batch of this broker's own and wait until it is committed. Returns its base offset.

        Raises as `append` does, and PartitionRefused where the partition goes away meanwhile.
        """
        appended = self.append(batch, now_ms)
        waiter = _FutureWaiter()
        if self.when_committed(appended.end_offset, waiter):
            await waiter.future
        return appended.base_offset

    def take_unsynced(self) -> Unsynced:
        return self.log.take_unsynced()

    def flushed(self, synced: Unsynced) -> None:
        self.log.flushed(synced)
        if not self.is_deleted:
            self._note_flushed_end()
            self.directory.unsaved[self] = None

    def announce(self) -> None:
        self._advance()

    def flush_failed(self, synced: Unsynced, error: OSError) -> None:
        self.log.sync_failed(synced)
        self.directory.fail(error)

    @property
    def is_offline(self) -> bool:
        return self.directory.error is not None

    def go_offline(self) -> None:
        """The log directory is gone: whoever waits is told so."""
        self._waiters.fail(PartitionRefused(Refusal.OFFLINE))
        self._wakeups.moved(self.watchers)

    def deleted(self) -> None:
        """The topic is gone: whoever waits is told so, and nothing is written any more."""
        self.is_deleted = True
        self._waiters.fail(PartitionRefused(Refusal.DELETED))
        self._wakeups.moved(self.watchers)

    def close(self) -> None:
        """Put the log on disk so that the next start has nothing to recover. Waits for the disk."""
        self.log.close()
        if self.log.segments:
            self._note_flushed_end()

    def _note_flushed_end(self) -> None:
        end, epoch = self.log.flushed_end, self.log.epochs.epoch_at(self.log.flushed_end - 1)
        self.directory.marks.note(self._mark_slot, self._topic_id_bytes, self.index, end, epoch)

    def _advance(self) -> None:
        """Move the high watermark to what counts as kept on the whole in-sync set, which is this replica."""
        is_kept_by_os = self.log.config.flush_policy is FlushPolicy.OS
        end = self.log.log_end if is_kept_by_os else self.log.flushed_end
        if end <= self.high_watermark or self.directory.error is not None:
            return
        assert end <= self.log.log_end, "rule 1: the watermark never passes the leader's log"
        self.high_watermark = end
        self._waiters.reached(end)
        if self.watchers:
            self._wakeups.moved(self.watchers)


class _FutureWaiter:
    """A coroutine that waits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def reached(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def failed(self, reason: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(reason)
