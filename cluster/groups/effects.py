"""Execution of group effects: replies, writes, and timers for deadlines.

There is one timer a group. A deadline that moves later leaves the timer as it is; the timer checks again when it fires.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
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
from cordwood.cluster.metadata.pause_detector import PauseDetector
from cordwood.replication.tasks import Tasks

LOOK_S = 0.1
STILL_S = 2 * LOOK_S
"""Gap between two looks above which the loop has paused. Heartbeats of a pause are read only after its timers."""

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
        self._timers: dict[Group, asyncio.TimerHandle] = {}
        self._writes: dict[Group, asyncio.Task[ErrorCode]] = {}
        self._pause_detector = PauseDetector(STILL_S)
        self._looking: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """Return the time by which groups count their deadlines."""
        return round(self._loop.time() * 1000)

    def let_go(self, shard: Shard) -> None:
        """Refuse the waiting requests with NOT_COORDINATOR, and forget the groups of a shard."""
        refusal = Refused(ErrorCode.not_coordinator)
        for group in shard.groups.values():
            self._stop_timer(group)
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
            self._stop_timer(group)

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
        timer = self._timers.get(group)
        if deadline_ms is None:
            self._stop_timer(group)
            return
        at = deadline_ms / 1000
        if timer is not None:
            if timer.when() <= at:
                return
            timer.cancel()
        self._timers[group] = self._loop.call_at(at, self._deadline, shard, group)
        if self._looking is None:
            self._look()

    def _look(self) -> None:
        """Postpone all deadlines by a pause of the loop. Look again while any group has a deadline."""
        still_s = self._pause_detector.look(self._loop.time())
        for group in self._timers if still_s else ():
            group.postpone(round(still_s * 1000))
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._loop.call_later(LOOK_S, self._look) if self._timers else None
        if self._looking is None:
            self._pause_detector.rest()

    def _deadline(self, shard: Shard, group: Group) -> None:
        # After a pause this timer may fire before the next look, which has to postpone the deadlines first.
        self._look()
        self._timers.pop(group, None)
        if shard.groups.get(group.group_id) is group:
            group.tick(self.now_ms())
            self.perform(shard, group)

    def _stop_timer(self, group: Group) -> None:
        timer = self._timers.pop(group, None)
        if timer is not None:
            timer.cancel()
