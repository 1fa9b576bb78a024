"""Share partitions of a broker: those whose partitions it leads. Acquisitions, acknowledgements, locks and writes.

A thin shell around `share_partition.py`. Everything that members acknowledge while a write is under way is in the next
write, and each acknowledgement is answered once its write is stored.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.group_configs import ShareConfig
from cordwood.cluster.config.offset_reset import EARLIEST, lookback_ms
from cordwood.cluster.coordination.shard_store import chunks
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.image import Image, changed_topics
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.share.coordinator import StateChange
from cordwood.cluster.share.dead_letters import Copied, DeadLetterCause, DeadLetters, Undeliverable
from cordwood.cluster.share.led_share_partition import LedSharePartition
from cordwood.cluster.share.lock_timers import LockTimers
from cordwood.cluster.share.measures import ShareMeasures
from cordwood.cluster.share.persister import SharePersister
from cordwood.cluster.share.settings import GroupConfigOf
from cordwood.cluster.share.share_partition import (
    WRITE_BATCHES_MAX,
    LogBatch,
    SharePartition,
    ShareRules,
    WriteOutcome,
)
from cordwood.cluster.share.share_sessions import ShareSession, ShareSessions
from cordwood.cluster.share.state import UNINITIALIZED, UNKNOWN_COUNT, SharePartitionState
from cordwood.cluster.share.states import FINAL, AcknowledgementBatch, AcquiredBatch, SharePartitionKey
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.partition import Partition
from cordwood.replication.refusal import PartitionRefused
from cordwood.replication.tasks import Tasks
from cordwood.replication.waiters import EndOfTickScheduler, Watcher
from cordwood.storage.errors import StorageError

IDLE_S, SWEEP_S = 900.0, 60.0
"""A share partition that is not used for this long is dropped from memory."""
OPENINGS_MAX = 2000
"""The states of share partitions that fetches have read at a time: some 6 MB."""
RETRY_S = 1.0

FENCED = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.fenced_state_epoch,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Codes of a share coordinator after which the state in memory does not count any more."""

_events = structlog.get_logger("share")
_NameT = TypeVar("_NameT", bound=Hashable)

Opening = asyncio.Task[LedSharePartition | Exception]
"""Reads a share partition's state. Returns an expected error: several requests may wait for it, or none any more."""
OffsetAt = Callable[[Partition, int], Awaitable[int | None]]
"""Returns the first offset of a partition with at least this timestamp; None if there is none."""


class SharePartitionView(NamedTuple):
    """One share partition, as an operator sees it. Offsets are half-open."""

    group_id: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    in_flight: int
    """Records that have been delivered and are not finished."""
    acquired: int
    """Records that are locked for members."""
    delivery_count_max: int
    """The highest delivery count of a record in flight; 0 without one."""


class SharePartitions:
    """All share partitions of one broker."""

    def __init__(
        self,
        persister: SharePersister,
        sessions: ShareSessions,
        dead_letters: DeadLetters,
        group_config: GroupConfigOf,
        offset_at: OffsetAt,
        wall_clock: Callable[[], int],
        end_of_tick: EndOfTickScheduler,
        turns: Turns,
    ) -> None:
        self.sessions, self._group_config = sessions, group_config
        self.measures = ShareMeasures()
        self._persister, self._dead_letters = persister, dead_letters
        self._offset_at, self._wall_clock, self._end_of_tick = offset_at, wall_clock, end_of_tick
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._of_topic: dict[UUID, dict[SharePartitionKey, None]] = {}
        self._of_group: dict[str, dict[SharePartitionKey, None]] = {}
        self._opening: dict[SharePartitionKey, Opening] = {}
        self._wait_for_room: dict[Watcher, None] = {}
        self._timers: LockTimers[LedSharePartition] = LockTimers(self._loop, self._locks_ended, turns.now)
        self._sweeper: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Drop all share partitions. The next leaders read the stored states."""
        self._timers.close()
        await self._tasks.close()

    def config_of(self, group_id: str) -> ShareConfig:
        """Return the effective configs of a share group."""
        return self._group_config(group_id).share

    def on_metadata_change(self, old: Image, new: Image) -> None:
        """Drop the share partitions that this broker does not lead any more."""
        if self._led and old.topics_by_id is not new.topics_by_id:
            changed = [before.id for before, _ in changed_topics(old, new) if before is not None]
            keys = [key for topic_id in changed for key in self._of_topic.get(topic_id, ())]
            if keys:
                self._tasks.spawn(self._drop_former(keys), "share groups: former partitions")

    def views(self, group_id: str | None = None) -> Iterator[SharePartitionView]:
        """Yield all share partitions, or those of one group. A caller may pause."""
        for key in list(self._led if group_id is None else self._of_group.get(group_id, ())):
            if (led := self._led.get(key)) is not None:
                yield _view(led)

    def find(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition; None if its state is not in memory."""
        led = self._led.get(key)
        if led is None:
            return None
        if not led.is_current:
            self._drop(led)
            return None
        self._refresh(led)
        return led

    async def open(self, key: SharePartitionKey, partition: Partition) -> LedSharePartition:
        """Return a share partition; its state is read first, if it is not in memory.

        Raises Refused with a client's error code, PartitionRefused, and StorageError.
        """
        led = self.find(key)
        if led is None:
            led = opened(await asyncio.shield(self._opening.get(key) or self._begin_to_open(key, partition)))
            self._refresh(led)
        return led

    def begin_to_open(self, key: SharePartitionKey, partition: Partition, watcher: Watcher) -> Opening | None:
        """Read a share partition's state in the background, to the end. Raises PartitionRefused.

        If OPENINGS_MAX are being read, return None, and wake the watcher once there is room.
        """
        opening = self._opening.get(key)
        if opening is None and len(self._opening) >= OPENINGS_MAX:
            self._wait_for_room[watcher] = None
            return None
        return opening or self._begin_to_open(key, partition)

    def leave(self, watcher: Watcher) -> None:
        """Do not wake a watcher any more."""
        self._wait_for_room.pop(watcher, None)

    def acquire(
        self,
        led: LedSharePartition,
        member: str,
        fetched_from: int,
        batches: Sequence[LogBatch],
        records_max: int,
        *,
        batch_size: int,
        is_strict: bool,
    ) -> list[AcquiredBatch]:
        """Lock records of these batches for a member."""
        now = self._loop.time()
        acquired = led.state.acquire(
            member, fetched_from, batches, records_max, now, batch_size=batch_size, is_strict=is_strict
        )
        for start, end, delivery_count in acquired:
            self.measures.acquired += end - start
            if delivery_count > 1:
                self.measures.redelivered += end - start
        if acquired:
            self._timers.set(led, now + led.state.rules.lock_s)
        if led.state.must_write:
            self._write_soon(led)
        return acquired

    def acknowledge(
        self, led: LedSharePartition, member: str, batches: Sequence[AcknowledgementBatch]
    ) -> "asyncio.Future[None] | None":
        """Acknowledge records. Return a future that is done once this is stored, or refused; None if nothing is to be.

        Raises Refused.
        """
        if not led.state.acknowledge(member, batches, self._loop.time()):
            return None
        stored: asyncio.Future[None] = self._loop.create_future()
        led.acks.append(stored)
        self._write_soon(led)
        return stored

    def session_ended(self, session: ShareSession) -> None:
        """Release the records of the member of a session."""
        self._tasks.spawn(self._release((session,)), "share groups: release")

    def connection_ended(self, connection: object) -> None:
        """End the sessions that a connection has opened, and release what their members have acquired."""
        if ended := self.sessions.end_of(connection):
            self._tasks.spawn(self._release(ended), "share groups: release")

    async def session_opened(self, session: ShareSession) -> None:
        """Have the states of a group without other sessions read again: they may have been altered meanwhile.

        Only a group without members can be altered (KIP-932). A state that is being written shows by its epoch whether
        it has been.
        """
        group_id = session.key.group_id
        if self.sessions.count_of(group_id) == 1:
            async for led in self._each(list(self._of_group.get(group_id, ()))):
                state = led.state
                if state.next_deadline() is None and not (state.is_writing or state.must_write or led.is_copying):
                    self._drop(led)

    async def _release(self, sessions: Iterable[ShareSession]) -> None:
        for session in sessions:
            group_id, member_id = session.key
            keys = (SharePartitionKey(group_id, *place) for place in session.partitions)
            async for led in self._each(keys):
                while led.is_current and led.state.release_member(member_id):
                    self._write_soon(led)
                    await self._turns.turn()

    async def _drop_former(self, keys: Iterable[SharePartitionKey]) -> None:
        """Drop share partitions that this broker does not lead any more: their members look for the leader."""
        async for led in self._each(keys):
            if not led.is_current:
                self._drop(led)

    async def _each(self, keys: Iterable[SharePartitionKey]) -> AsyncIterator[LedSharePartition]:
        """Yield the share partitions in memory, each in its own step: it may have thousands of runs."""
        for key in keys:
            await self._turns.turn()
            if (led := self._led.get(key)) is not None:
                yield led

    def _begin_to_open(self, key: SharePartitionKey, partition: Partition) -> Opening:
        opening = self._opening[key] = self._tasks.spawn(self._opened(key, partition, partition.leader))
        opening.add_done_callback(lambda _: self._opening_ended(key))
        return opening

    def _opening_ended(self, key: SharePartitionKey) -> None:
        self._opening.pop(key, None)
        if self._wait_for_room and len(self._opening) <= OPENINGS_MAX // 2:
            waiting, self._wait_for_room = self._wait_for_room, {}
            self._end_of_tick.moved(waiting)

    async def _opened(
        self, key: SharePartitionKey, partition: Partition, role: LeaderRole
    ) -> LedSharePartition | Exception:
        try:
            return await self._open(key, partition, role)
        except (Refused, PartitionRefused, StorageError) as error:
            return error

    async def _open(self, key: SharePartitionKey, partition: Partition, role: LeaderRole) -> LedSharePartition:
        """Read a share partition's state. One that begins now has its start offset stored before it is used."""
        leader_epoch = partition.leader_epoch
        stored = await self._persister.read(key, leader_epoch)
        start = stored.start_offset
        if start == UNINITIALIZED:
            start = await self._first_offset(key, partition)
            change = StateChange(key, stored.state_epoch, leader_epoch, start, (), UNKNOWN_COUNT)
            await self._persister.write(change)
        elif _end(stored) > partition.log.log_end:
            stored = await self._without_lost(key, stored, leader_epoch, partition.log.log_end)
            start = stored.start_offset
        if partition.leading is not role:
            raise Refused(ErrorCode.not_leader_or_follower)
        led = LedSharePartition(key, partition, role, SharePartition(start, stored.batches), stored.state_epoch)
        self._led[key] = led
        self._of_topic.setdefault(key.topic_id, {})[key] = None
        self._of_group.setdefault(key.group_id, {})[key] = None
        if self._sweeper is None:
            self._sweeper = self._tasks.repeat(self._sweep, "share groups: sweep")
        self._refresh(led)
        self._copy_soon(led)
        return led

    async def _without_lost(
        self, key: SharePartitionKey, stored: SharePartitionState, leader_epoch: int, log_end: int
    ) -> SharePartitionState:
        """Begin a share partition anew that was past the log end, and store what is left: the log has lost records.

        New records get their offsets. The next leader would take them for records that are done.
        """
        _events.warning("share.records_lost", share_partition=str(key), state_end=_end(stored), log_end=log_end)
        start, epoch = min(stored.start_offset, log_end), stored.state_epoch
        kept = [batch._replace(end=min(batch.end, log_end)) for batch in stored.batches if batch.start < log_end]
        done = sum(batch.end - batch.start for batch in kept if batch.state in FINAL)
        await self._persister.initialize(*key, epoch, start)
        for some in chunks(kept, WRITE_BATCHES_MAX):
            await self._persister.write(StateChange(key, epoch, leader_epoch, start, tuple(some), done))
        return replace(stored, start_offset=start, batches=tuple(kept))

    async def _first_offset(self, key: SharePartitionKey, partition: Partition) -> int:
        reset = self.config_of(key.group_id).auto_offset_reset.strip()
        if reset == EARLIEST:
            return partition.log.log_start
        end, age_ms = partition.known_high_watermark(), lookback_ms(reset)
        if age_ms is None:
            return end
        found = await self._offset_at(partition, self._wall_clock() - age_ms)
        return end if found is None else found

    def _refresh(self, led: LedSharePartition) -> None:
        """Apply the group's configs and the log start offset."""
        config = self.config_of(led.key.group_id)
        led.state.rules = self._rules(config)
        led.state.move_log_start(led.partition.log.log_start)
        if led.state.must_write:
            self._write_soon(led)
        led.used_at = self._loop.time()

    def _rules(self, config: ShareConfig) -> ShareRules:
        return ShareRules(
            config.delivery_count_limit,
            config.record_lock_ms / 1000,
            config.partition_max_record_locks,
            self._dead_letters.is_usable(config),
        )

    def _drop(self, led: LedSharePartition) -> None:
        """Forget a share partition. Its acknowledgements are refused, and fetches that wait look for it again."""
        led.is_dropped = True
        if self._led.get(led.key) is led:
            del self._led[led.key]
            _remove(self._of_topic, led.key.topic_id, led.key)
            _remove(self._of_group, led.key.group_id, led.key)
        acks, led.acks = led.acks, []
        _refuse(acks, Refused(ErrorCode.not_leader_or_follower))
        self._end_of_tick.moved(led.watchers)

    def _locks_ended(self, led: LedSharePartition, now: float) -> float | None:
        """Release records whose locks have ended. Return when the next locks do."""
        if not led.is_current:
            return None
        self._refresh(led)
        if expired := led.state.expire(now):
            self.measures.expired_locks += expired
        if led.state.must_write:
            self._write_soon(led)
        return led.state.next_deadline()

    def _write_soon(self, led: LedSharePartition) -> None:
        """Store changes at the end of this event-loop iteration, or after the write that is under way."""
        if not led.is_write_due and not led.state.is_writing:
            led.is_write_due = True
            self._loop.call_soon(self._begin_write, led)

    def _begin_write(self, led: LedSharePartition) -> None:
        led.is_write_due = False
        if not led.is_current:
            self._drop(led)
            return
        acks, led.acks = led.acks, []
        write = led.state.begin_write()
        if write is None:
            _confirm(acks)
            return
        change = StateChange(led.key, led.state_epoch, led.leader_epoch, *write)
        self.measures.writes += 1
        is_whole = not led.state.must_write
        self._tasks.spawn(self._store(led, change, acks, is_whole=is_whole), "share groups: write")

    async def _store(
        self, led: LedSharePartition, change: StateChange, acks: Sequence["asyncio.Future[None]"], *, is_whole: bool
    ) -> None:
        """Store changes. `is_whole` is False if some that `acks` wait for are in the next write."""
        try:
            await self._persister.write(change)
        except Refused as refusal:
            self.measures.failed_writes += 1
            led.state.failed()
            _refuse(acks, for_client(refusal))
            if refusal.code in FENCED:
                _events.info("share.fenced", share_partition=str(led.key), reason=str(refusal))
                self._drop(led)
                return
            self._loop.call_later(RETRY_S, self._retry, led)
        else:
            outcome = led.state.committed()
            self._note(outcome)
            if is_whole:
                # A leader that lost its leadership meanwhile may confirm: the next one reads the stored state.
                _confirm(acks)
            else:
                led.acks[:0] = acks
            self._end_of_tick.moved(led.watchers)
            self._copy_soon(led)
        if led.state.must_write:
            self._write_soon(led)

    def _retry(self, led: LedSharePartition) -> None:
        """Release locks that have ended, and go on with dead letters, after a write that failed."""
        if led.is_current:
            self._timers.set(led, self._loop.time())
            self._copy_soon(led)

    def _note(self, outcome: WriteOutcome) -> None:
        self.measures.acknowledged += outcome.acknowledged
        self.measures.released += outcome.released
        self.measures.rejected += outcome.rejected
        self.measures.archived += outcome.archived

    def _copy_soon(self, led: LedSharePartition) -> None:
        """Copy undeliverable records to the dead-letter queue in the background."""
        if not led.is_copying and led.is_current and led.state.archiving():
            led.is_copying = True
            self._tasks.spawn(self._copy(led), "share groups: dead letters")

    async def _copy(self, led: LedSharePartition) -> None:
        """Copy undeliverable records, and archive them once the dead-letter queue has them."""
        try:
            pending = deque(led.state.archiving())
            while pending and led.is_current:
                run = pending.popleft()
                config = self.config_of(led.key.group_id)
                is_exhausted = not run.is_rejected and run.delivery_count >= config.delivery_count_limit
                cause = DeadLetterCause.DELIVERY_COUNT if is_exhausted else DeadLetterCause.REJECTED
                letters = Undeliverable(led.key, led.partition, run.start, run.end, run.delivery_count, cause)
                copied = await self._dead_letters.copy(letters, config, lambda: led.is_current)
                if not led.is_current:
                    return
                self._count_copied(letters, copied)
                end = letters.end if copied is None else copied.end
                led.state.archived(letters.start, end)
                self._write_soon(led)
                if end < letters.end:
                    pending = deque(led.state.archiving())
        finally:
            led.is_copying = False

    def _count_copied(self, letters: Undeliverable, copied: Copied | None) -> None:
        if copied is None:
            self.measures.dead_letters_refused += letters.end - letters.start
        else:
            self.measures.dead_letters += copied.end - letters.start
            self.measures.dead_letters_without_contents += copied.without_contents

    async def _sweep(self) -> None:
        """Drop unused share partitions."""
        await asyncio.sleep(SWEEP_S)
        before = self._loop.time() - IDLE_S
        async for led in self._each(list(self._led)):
            if led.used_at < before and led.is_idle:
                self._drop(led)


def _remove(index: dict[_NameT, dict[SharePartitionKey, None]], name: _NameT, key: SharePartitionKey) -> None:
    of_name = index[name]
    del of_name[key]
    if not of_name:
        del index[name]


def _view(led: LedSharePartition) -> SharePartitionView:
    state = led.state
    in_flight, delivery_count_max = 0, 0
    for run in state.runs:
        if run.final_state not in FINAL and run.delivery_count:
            in_flight += run.count
            delivery_count_max = max(delivery_count_max, run.delivery_count)
    return SharePartitionView(
        led.key.group_id,
        led.partition.topic,
        led.partition.index,
        state.start_offset,
        state.end_offset,
        in_flight,
        state.acquired_count(),
        delivery_count_max,
    )


def opened(found: LedSharePartition | Exception) -> LedSharePartition:
    """Return what an opening has found. Raises its error with a client's code."""
    if isinstance(found, Refused):
        raise for_client(found) from found
    if isinstance(found, Exception):
        raise found
    return found


def for_client(refusal: Refused) -> Refused:
    """Return a share coordinator's refusal as a member gets it: after a fence, the member looks for the leader."""
    match refusal.code:
        case ErrorCode.fenced_leader_epoch | ErrorCode.fenced_state_epoch | ErrorCode.invalid_request:
            return Refused(ErrorCode.not_leader_or_follower, refusal.message)
        case ErrorCode.message_too_large:
            # Of the state, not of the member's acknowledgements.
            return Refused(ErrorCode.unknown_server_error, "The state of the share partition is too large.")
        case _:
            return refusal


def _end(stored: SharePartitionState) -> int:
    """Return the end of the records of which a stored state knows something."""
    return max(stored.start_offset, stored.batches[-1].end if stored.batches else UNINITIALIZED)


def _confirm(acks: Sequence["asyncio.Future[None]"]) -> None:
    for ack in acks:
        if not ack.done():
            ack.set_result(None)


def _refuse(acks: Sequence["asyncio.Future[None]"], reason: Refused) -> None:
    for ack in acks:
        if not ack.done():
            ack.set_exception(reason)
            # The request may have been cancelled: mark the exception as retrieved.
            ack.exception()
