"""Execution of group effects: replies, writes, and timers for deadlines.

The deadlines of all groups are in one heap, and one timer of the loop waits for the earliest. A deadline that moves
later leaves the timer as it is; the timer checks again when it fires.
"""

import asyncio
from collections.abc import Callable
from itertools import count, islice
from typing import Generic, TypeVar

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.clock import GroupClock
from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.groups.exchange import (
    JoinAnswer,
    JoinReply,
    Purpose,
    Rebalancing,
    RequestId,
    Store,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.formats import encode_group
from cordwood.cluster.groups.group import Group
from cordwood.cluster.groups.shard import SavedValue, Shard
from cordwood.cluster.groups.state_store import GroupStateStore
from cordwood.replication.tasks import Tasks

TICKS_PER_ITERATION_MAX = 50
"""Largest number of groups whose deadlines are handled in one event-loop iteration."""

REASON_CHARS_MAX = 500
"""Characters of a client's reason (KIP-800) that go to the log."""

_ReplyT = TypeVar("_ReplyT", JoinReply, SyncReply)
_events = structlog.get_logger("groups")


class Waiting(Generic[_ReplyT]):
    """Requests that wait for their reply. A request whose client has gone is answered like any other."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._futures: dict[RequestId, asyncio.Future[_ReplyT]] = {}

    def enter(self) -> RequestId:
        request_id = RequestId(next(self._numbers))
        self._futures[request_id] = asyncio.get_running_loop().create_future()
        return request_id

    async def wait(self, request_id: RequestId) -> _ReplyT:
        try:
            return await self._futures[request_id]
        finally:
            del self._futures[request_id]

    def answer(self, request_id: RequestId, reply: _ReplyT) -> None:
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_result(reply)

    def refuse(self, request_id: RequestId, refusal: Refused) -> None:
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_exception(refusal)


class EffectRunner:
    """The executor of group effects."""

    def __init__(self, state_store: GroupStateStore, tasks: Tasks, wall_clock: Callable[[], int]) -> None:
        self.joins: Waiting[JoinReply] = Waiting()
        self.syncs: Waiting[SyncReply] = Waiting()
        self._state_store, self._tasks, self._wall_clock = state_store, tasks, wall_clock
        self._loop = asyncio.get_running_loop()
        self._clock = GroupClock(self._loop)
        self._deadlines: Deadlines[Group] = Deadlines()
        self._shards: dict[Group, Shard] = {}
        """The shards of the groups that have a deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._writes: dict[Group, asyncio.Task[ErrorCode]] = {}

    def now_ms(self) -> int:
        """Return the time by which groups count their deadlines."""
        return self._clock.now_ms()

    def let_go(self, shard: Shard) -> None:
        """Refuse the waiting requests with NOT_COORDINATOR, and forget the groups of a shard."""
        refusal = Refused(ErrorCode.not_coordinator)
        for group in shard.groups.values():
            self._drop_deadline(group)
            for member in group.members:
                if member.joining is not None:
                    self.joins.refuse(member.joining, refusal)
                if member.syncing is not None:
                    self.syncs.refuse(member.syncing, refusal)
        shard.groups.clear()

    def perform(self, shard: Shard, group: Group) -> None:
        """Execute the group's effects, and set the timer for its next deadline."""
        for effect in group.take_effects():
            match effect:
                case JoinAnswer(request_id, join_reply):
                    self.joins.answer(request_id, join_reply)
                case SyncAnswer(request_id, sync_reply):
                    self.syncs.answer(request_id, sync_reply)
                case Store():
                    self._store(shard, group, effect)
                case Rebalancing(reason):
                    reason = reason[:REASON_CHARS_MAX]
                    _events.info("group.rebalances", group=group.group_id, after=group.generation, reason=reason)
        if shard.groups.get(group.group_id) is not group:
            return
        if group.is_vacant and not shard.is_kept(group.group_id):
            self.forget(shard, group.group_id)
            return
        for excess in shard.note_unsaved(group):
            self.forget(shard, excess)
        self._await_deadline(shard, group)

    def forget(self, shard: Shard, group_id: str) -> None:
        group = shard.forget(group_id)
        if group is not None:
            self._drop_deadline(group)

    async def written(self, group: Group) -> ErrorCode:
        """Wait until the group's latest record is written. Return the code of that write."""
        write = self._writes.get(group)
        return ErrorCode.none if write is None else await asyncio.shield(write)

    def _store(self, shard: Shard, group: Group, store: Store) -> None:
        now_ms = self._wall_clock()
        if store.purpose is Purpose.EMPTIED:
            group.emptied_ms = now_ms
            if not shard.is_kept(group.group_id):
                # The group became empty before any record of it was written.
                return
        value = encode_group(store.group, now_ms)
        saving = shard.save(group.group_id, value)
        write = self._tasks.spawn(self._write_group(shard, group, store, value, saving))
        self._writes[group] = write
        write.add_done_callback(lambda _: self._written(group, write))

    def _written(self, group: Group, write: "asyncio.Task[ErrorCode]") -> None:
        if self._writes.get(group) is write:
            del self._writes[group]

    async def _write_group(
        self, shard: Shard, group: Group, store: Store, value: bytes, saving: SavedValue
    ) -> ErrorCode:
        if shard.groups.get(group.group_id) is not group:
            # The group was deleted meanwhile: its record must not come back.
            shard.not_saved(group.group_id, saving)
            return ErrorCode.none
        code = ErrorCode.none
        try:
            await self._state_store.write(shard, {}, {group.group_id: value})
            shard.saved(group.group_id, saving)
        except Refused as refusal:
            code = refusal.code
            shard.not_saved(group.group_id, saving)
            _events.warning("group.not_written", group=group.group_id, error=str(refusal))
        if code is ErrorCode.message_too_large:
            code = ErrorCode.unknown_server_error
        if shard.groups.get(group.group_id) is group:
            group.stored(store, code, self.now_ms())
            self.perform(shard, group)
        return code

    def _await_deadline(self, shard: Shard, group: Group) -> None:
        deadline_ms = group.next_deadline()
        if deadline_ms is None:
            self._drop_deadline(group)
            return
        self._deadlines.put(group, deadline_ms)
        self._shards[group] = shard
        self._clock.watch()
        self._set_timer()

    def _drop_deadline(self, group: Group) -> None:
        self._deadlines.remove(group)
        self._shards.pop(group, None)
        if not self._deadlines:
            self._rest()

    def _set_timer(self) -> None:
        """Set the timer to the earliest deadline, unless it fires before that anyway."""
        at_ms = self._deadlines.next()
        if at_ms is None:
            return
        at = self._clock.loop_time(at_ms)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._deadline)

    def _deadline(self) -> None:
        """Have the groups whose deadlines have passed handle them: some now, and the rest in the next iterations."""
        self._timer = None
        now_ms = self.now_ms()
        for group in islice(self._deadlines.take_due(now_ms), TICKS_PER_ITERATION_MAX):
            shard = self._shards.pop(group)
            if shard.groups.get(group.group_id) is group:
                group.tick(now_ms)
                self.perform(shard, group)
        if self._deadlines:
            self._set_timer()
        else:
            self._rest()

    def _rest(self) -> None:
        self._clock.rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
