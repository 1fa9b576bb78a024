"""Execution of group effects: replies, writes, and timers for deadlines.

The deadlines of all groups are in one heap, and one timer of the loop waits for the earliest. A deadline that moves
later leaves the timer as it is; the timer checks again when it fires.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.shard import Content
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.any_group import AnyGroup
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.clock import GroupClock
from cordwood.cluster.groups.deadlines import Deadlines
from cordwood.cluster.groups.exchange import (
    AnyAnswer,
    AppendRecords,
    Become,
    Compute,
    Convert,
    Effect,
    HeartbeatAnswer,
    JoinAnswer,
    JoinReply,
    Purpose,
    Rebalancing,
    RequestId,
    SavedGroup,
    Store,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.formats import encode_group, encode_group_key
from cordwood.cluster.groups.heartbeat import HeartbeatReply
from cordwood.cluster.groups.measures import GroupMeasures
from cordwood.cluster.groups.pace import ReplyPace
from cordwood.cluster.groups.settings import BATCH_BYTES_MAX
from cordwood.cluster.groups.shard import SavedValue, Shard
from cordwood.cluster.groups.share.exchange import Discard, Initialize
from cordwood.cluster.groups.share.group import ShareGroup
from cordwood.cluster.groups.share.state_requests import ShareStateRequests
from cordwood.cluster.groups.state_store import GroupStateStore
from cordwood.cluster.resources.turns import FREE_STEPS, Turns
from cordwood.replication.tasks import Tasks
from cordwood.storage.steps import Steps, at_once, some

TICKS_PER_ITERATION_MAX = 50
"""Largest number of groups whose deadlines are handled in one event-loop iteration."""

ENCODED_AT_ONCE_BYTES_MAX = 1 << 20
"""Largest subscriptions and assignments of a group of few members whose record is encoded and appended in one step."""

REASON_CHARS_MAX = 500
"""Characters of a client's reason (KIP-800) that go to the log."""

_ReplyT = TypeVar("_ReplyT")
_events = structlog.get_logger("groups")


class GroupWriteOutcome(NamedTuple):
    """The outcome of a write of a group's records, and of the writes before it."""

    code: ErrorCode = ErrorCode.none
    lacking_until: int = 0
    """The number of the last write that began without the records that could not be written; later ones have them."""


class Waiting(Generic[_ReplyT]):
    """Requests that wait for their reply. A request whose client has gone is answered like any other."""

    def __init__(self, pace: ReplyPace, numbers: Iterator[int]) -> None:
        """`numbers` are shared with the requests of other kinds: an id stands for one request of them all."""
        self._pace, self._numbers = pace, numbers
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
        self._pace.reply(partial(self._answer, request_id, reply))

    def refuse(self, request_id: RequestId, refusal: Refused) -> None:
        if request_id in self._futures:
            self._pace.reply(partial(self._refuse, request_id, refusal))

    def _answer(self, request_id: RequestId, reply: _ReplyT) -> None:
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_result(reply)

    def _refuse(self, request_id: RequestId, refusal: Refused) -> None:
        future = self._futures.get(request_id)
        if future is not None and not future.done():
            future.set_exception(refusal)


class EffectRunner:
    """The executor of group effects."""

    def __init__(
        self,
        state_store: GroupStateStore,
        tasks: Tasks,
        wall_clock: Callable[[], int],
        turns: Turns,
        states: ShareStateRequests,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        pace, numbers = ReplyPace(self._loop), count(1)
        self.joins: Waiting[JoinReply] = Waiting(pace, numbers)
        self.syncs: Waiting[SyncReply] = Waiting(pace, numbers)
        self.heartbeats: Waiting[HeartbeatReply] = Waiting(pace, numbers)
        self._turns, self._states = turns, states
        self.measures = GroupMeasures()
        self._state_store, self._tasks, self._wall_clock = state_store, tasks, wall_clock
        self._clock = GroupClock(self._loop)
        self._deadlines: Deadlines[AnyGroup] = Deadlines()
        self._shards: dict[AnyGroup, Shard] = {}
        """The shards of the groups that have a deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When the timer fires: uvloop has no `when` for a time that is now."""
        self._writes: dict[AnyGroup, asyncio.Task[GroupWriteOutcome]] = {}
        """The newest write of each group that is being written."""
        self._writes_begun = 0
        self._encodings: dict[AnyGroup, asyncio.Future[None]] = {}
        """The end of the last encoding of each group whose record is being encoded in turns."""
        self._busy: dict[AnyGroup, asyncio.Future[None]] = {}
        """The groups that change in turns, each with the end of that. They take no requests meanwhile."""

    def now_ms(self) -> int:
        """Return the time by which groups count their deadlines."""
        return self._clock.now_ms()

    def let_go(self, shard: Shard) -> None:
        """Refuse the waiting requests with NOT_COORDINATOR, and forget the groups of a shard."""
        refusal = Refused(ErrorCode.not_coordinator)
        for group in shard.groups.values():
            self._drop_deadline(group)
            self._refuse_waiting(group, refusal)
        shard.groups.clear()

    def perform(self, shard: Shard, group: AnyGroup) -> None:
        """Have the group handle what has come, execute its effects, and set the timer for its next deadline.

        What takes longer than some steps goes on in turns. A group that does so already handles the rest after that.
        """
        if group in self._busy:
            return
        steps = group.take_effects()
        effects = some(steps, FREE_STEPS)
        if effects is None:
            self._drop_deadline(group)
            self._busy[group] = self._loop.create_future()
            self._tasks.spawn(self._perform_in_turns(shard, group, steps))
        else:
            self._execute(shard, group, effects)

    async def change(self, group: AnyGroup, steps: Steps[_ReplyT]) -> _ReplyT:
        """Change a group that is settled in turns. It handles nothing else meanwhile."""
        self._drop_deadline(group)
        self._busy[group] = self._loop.create_future()
        try:
            return await self._turns.run(steps)
        finally:
            self._busy.pop(group).set_result(None)

    async def _perform_in_turns(self, shard: Shard, group: AnyGroup, steps: Steps[list[Effect]]) -> None:
        try:
            effects = await self._turns.run(steps)
            if isinstance(group, ClassicGroup):
                effects = await self._answer_in_turns(effects)
        finally:
            self._busy.pop(group).set_result(None)
        if shard.groups.get(group.group_id) is group:
            self._execute(shard, group, effects)
            # Events that have arrived meanwhile.
            self.perform(shard, group)
            return
        # The shard was dropped meanwhile.
        refusal = Refused(ErrorCode.not_coordinator)
        self._refuse_waiting(group, refusal)
        for effect in effects:
            match effect:
                case AppendRecords(answers=answers) | Convert(answers=answers):
                    for answer in answers:
                        self._refuse(answer, refusal)
                case JoinAnswer() | SyncAnswer() | HeartbeatAnswer():
                    self._refuse(effect, refusal)

    async def _answer_in_turns(self, effects: Sequence[Effect]) -> list[Effect]:
        """Send the replies of a classic group to thousands of members, which wait for no write. Return the rest."""
        rest: list[Effect] = []
        async for effect in self._turns.each(effects):
            match effect:
                case JoinAnswer() | SyncAnswer():
                    self._answer(effect)
                case _:
                    rest.append(effect)
        return rest

    def _execute(self, shard: Shard, group: AnyGroup, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._perform(shard, group, effect)
        if group in self._busy:
            return
        if shard.groups.get(group.group_id) is not group:
            return
        if group.is_vacant and not shard.is_kept(group.group_id):
            self.forget(shard, group.group_id)
            return
        for excess in shard.note_unsaved(group):
            self.forget(shard, excess)
        self._await_deadline(shard, group)

    def _perform(self, shard: Shard, group: AnyGroup, effect: Effect) -> None:
        match effect:
            case AppendRecords():
                self._append(shard, group, effect)
            case Compute():
                self._compute(shard, group, effect)
            case Convert():
                self._convert(shard, group, effect)
            case Store():
                assert isinstance(group, ClassicGroup), "other kinds append records"
                self._store(shard, group, effect)
            case Initialize():
                self._tasks.spawn(self._initialize(shard, group, effect))
            case Discard():
                self._tasks.spawn(self._discard(shard, group, effect))
            case Rebalancing(reason):
                self.measures.rebalances[group.kind] += 1
                reason = reason[:REASON_CHARS_MAX]
                _events.info("group.rebalances", group=group.group_id, after=group.epoch, reason=reason)
            case _:
                self._answer(effect)

    def forget(self, shard: Shard, group_id: str) -> None:
        group = shard.forget(group_id)
        if group is not None:
            self._drop_deadline(group)

    def _refuse_waiting(self, group: AnyGroup, refusal: Refused) -> None:
        for request_id in group.waiting():
            for kind in (self.joins, self.syncs, self.heartbeats):
                kind.refuse(request_id, refusal)

    async def written(self, group: AnyGroup) -> ErrorCode:
        """Wait until the group's latest record is written. Return the code of that write."""
        write = self._writes.get(group)
        return ErrorCode.none if write is None else (await asyncio.shield(write)).code

    async def settled(self, shard: Shard | None, group_id: str) -> None:
        """Wait until no group of this id changes in turns."""
        while shard is not None and (group := shard.groups.get(group_id)) in self._busy:
            await asyncio.shield(self._busy[group])
            # Thousands may have waited: all of them in one iteration would hold the event loop.
            await self._turns.turn()

    def _answer(self, answer: AnyAnswer) -> None:
        match answer:
            case JoinAnswer(request_id, join_reply):
                self.joins.answer(request_id, join_reply)
            case SyncAnswer(request_id, sync_reply):
                self.syncs.answer(request_id, sync_reply)
            case HeartbeatAnswer(request_id, reply):
                self.heartbeats.answer(request_id, reply)

    def _refuse(self, answer: AnyAnswer, refusal: Refused) -> None:
        match answer:
            case JoinAnswer(request_id):
                self.joins.refuse(request_id, refusal)
            case SyncAnswer(request_id):
                self.syncs.refuse(request_id, refusal)
            case HeartbeatAnswer(request_id):
                self.heartbeats.refuse(request_id, refusal)

    def _append(self, shard: Shard, group: AnyGroup, append: AppendRecords) -> None:
        before = self._writes.get(group)
        if not append.contents and before is None:
            for answer in append.answers:
                self._answer(answer)
            return
        self._writes_begun += 1
        self._write(group, self._append_after(before, shard, group, append, self._writes_begun))

    def _write(self, group: AnyGroup, writing: Coroutine[Any, Any, GroupWriteOutcome]) -> None:
        write = self._tasks.spawn(writing)
        self._writes[group] = write
        write.add_done_callback(lambda _: self._written(group, write))

    async def _append_after(
        self,
        before: "asyncio.Task[GroupWriteOutcome] | None",
        shard: Shard,
        group: AnyGroup,
        append: AppendRecords,
        number: int,
    ) -> GroupWriteOutcome:
        """Append the records. Reply once they, and earlier records of the group, are committed (group rule 2).

        If an earlier write has failed meanwhile, its records are not in the log, and the replies may show them: they
        are refused, although the records of this write are there. A write that begins later has the lacking records.
        """
        own = await self._append_now(shard, group, append)
        outcome = GroupWriteOutcome() if before is None else await asyncio.shield(before)
        if own.code is not ErrorCode.none:
            return own if own.lacking_until > outcome.lacking_until else outcome
        if outcome.lacking_until < number:
            for answer in append.answers:
                self._answer(answer)
            return GroupWriteOutcome()
        for answer in append.answers:
            self._refuse(answer, Refused(outcome.code))
        return outcome

    async def _append_now(self, shard: Shard, group: AnyGroup, append: AppendRecords) -> GroupWriteOutcome:
        """Append the records and wait until they are committed. If that fails, refuse the requests."""
        try:
            if shard.groups.get(group.group_id) is not group:
                # The group was removed or converted meanwhile: its records must not come back.
                raise Refused(ErrorCode.coordinator_not_available)
            await self._state_store.append_records(shard, append.contents)
        except Refused as refused:
            outcome = GroupWriteOutcome(_code_of(refused), self._writes_begun)
            _events.warning("group.not_written", group=group.group_id, error=str(refused))
        else:
            return GroupWriteOutcome()
        for answer in append.answers:
            self._refuse(answer, Refused(outcome.code))
        # Also of a group that another one has replaced: if the change of kind fails, the group continues.
        group.not_appended(append, outcome.code, self.now_ms())
        if shard.groups.get(group.group_id) is group:
            self.perform(shard, group)
        return outcome

    def _convert(self, shard: Shard, group: AnyGroup, convert: Convert) -> None:
        steps = self._converted_in_steps(convert)
        if convert.is_large or group in self._writes:
            self._drop_deadline(group)
            self._busy[group] = self._loop.create_future()
            self._tasks.spawn(self._convert_in_turns(shard, group, convert, steps))
        else:
            self._become(shard, group, *at_once(steps))

    async def _convert_in_turns(
        self, shard: Shard, group: AnyGroup, convert: Convert, steps: Steps[tuple[Become, bytes | None]]
    ) -> None:
        try:
            # Until all writes of the group have ended it is unknown which of its records are in the log.
            await self.written(group)
            become, value = await self._turns.run(steps)
        finally:
            self._busy.pop(group).set_result(None)
        if shard.groups.get(group.group_id) is group:
            self._become(shard, group, become, value)
            return
        # The shard was dropped meanwhile.
        refusal = Refused(ErrorCode.not_coordinator)
        self._refuse_waiting(become.successor, refusal)
        for answer in (*convert.answers, *become.answers):
            self._refuse(answer, refusal)

    def _converted_in_steps(self, convert: Convert) -> Steps[tuple[Become, bytes | None]]:
        """Return the successor of a group, and its encoded record."""
        become = yield from convert.steps()
        value = None
        if become.saved is not None:
            value = yield from encode_group(become.saved, self._wall_clock())
        return replace(become, answers=(*convert.answers, *become.answers)), value

    def _become(self, shard: Shard, group: AnyGroup, become: Become, value: bytes | None) -> None:
        successor, group_id = become.successor, group.group_id
        self.replace(shard, group, successor)
        contents, saving = list(become.contents), None
        if value is not None:
            saving = shard.save(group_id, is_tombstone=False)
            contents.insert(0, (encode_group_key(group_id), value))
        self._write(successor, self._append_change(shard, group, become, contents, saving))
        self.perform(shard, successor)

    async def _append_change(
        self, shard: Shard, group: AnyGroup, become: Become, contents: Sequence[Content], saving: SavedValue | None
    ) -> GroupWriteOutcome:
        """Append a change of a group's kind.

        If that fails, the group stays as it was (group rule 4). Once the first batch is in the log, a new coordinator
        has the successor: then it stays, and the records that may not be deleted are left over.
        """
        group_id, has_begun = group.group_id, asyncio.Event()
        outcome = GroupWriteOutcome()
        try:
            await self._state_store.append_records(shard, contents, has_begun.set)
        except Refused as refused:
            outcome = GroupWriteOutcome(_code_of(refused), self._writes_begun)
            _events.warning("group.not_converted", group=group_id, error=str(refused))
        for answer in become.answers:
            if outcome.code is ErrorCode.none:
                self._answer(answer)
            else:
                self._refuse(answer, Refused(outcome.code))
        if outcome.code is ErrorCode.none or has_begun.is_set():
            if saving is not None:
                shard.saved(group_id, saving)
            if outcome.code is not ErrorCode.none:
                shard.leftovers[group_id] = [key for key, _ in become.contents]
            return GroupWriteOutcome()
        if saving is not None:
            shard.not_saved(group_id, saving)
        if shard.groups.get(group_id) is become.successor:
            self._refuse_waiting(become.successor, Refused(outcome.code))
            self.replace(shard, become.successor, group)
            group.not_converted()
            self.perform(shard, group)
        return outcome

    def replace(self, shard: Shard, group: AnyGroup, successor: AnyGroup) -> None:
        """Put a group in the place of another one of the same id."""
        self._drop_deadline(group)
        shard.groups[group.group_id] = successor

    async def _initialize(self, shard: Shard, group: AnyGroup, effect: Initialize) -> None:
        """Initialize share states, once the group's record lists them."""
        assert isinstance(group, ShareGroup), "only share groups have share states"
        code = await self.written(group)
        failed = set(effect.partitions)
        if code is ErrorCode.none:
            refusals = await self._states.initialize(group.group_id, effect.partitions)
            failed = set(refusals)
            for refusal in list(refusals.values())[:1]:
                _events.warning("group.states_not_initialized", group=group.group_id, error=str(refusal))
        if shard.groups.get(group.group_id) is group:
            done = [partition for partition in effect.partitions if partition not in failed]
            group.initialized(done, list(failed), self.now_ms())
            self.perform(shard, group)

    async def _discard(self, shard: Shard, group: AnyGroup, effect: Discard) -> None:
        """Delete share states, once the group's record says so."""
        assert isinstance(group, ShareGroup), "only share groups have share states"
        failed = effect.topic_ids
        if (await self.written(group)) is ErrorCode.none:
            refusals = await self._states.delete(group.group_id, effect.partitions)
            failed = frozenset(topic_id for topic_id, _ in refusals)
        if shard.groups.get(group.group_id) is group:
            group.discarded(effect.topic_ids, failed, self.now_ms())
            self.perform(shard, group)

    def _compute(self, shard: Shard, group: AnyGroup, compute: Compute) -> None:
        began = self._turns.now()
        if compute.is_large:
            self._tasks.spawn(self._compute_in_turns(shard, group, compute, began))
        else:
            result = at_once(compute.steps())
            self.measures.assignments_s[group.kind].add(self._turns.now() - began)
            group.computed(compute, result, self.now_ms())
            self.perform(shard, group)

    async def _compute_in_turns(self, shard: Shard, group: AnyGroup, compute: Compute, began: float) -> None:
        result = await self._turns.run(compute.steps())
        self.measures.assignments_s[group.kind].add(self._turns.now() - began)
        await self.settled(shard, group.group_id)
        if shard.groups.get(group.group_id) is group:
            group.computed(compute, result, self.now_ms())
            self.perform(shard, group)

    def _store(self, shard: Shard, group: ClassicGroup, store: Store) -> None:
        now_ms = self._wall_clock()
        if store.purpose is Purpose.EMPTIED:
            group.emptied_ms = now_ms
            if not shard.is_kept(group.group_id):
                # The group became empty before any record of it was written.
                return
        saving = shard.save(group.group_id, is_tombstone=False)
        before, ended = self._encodings.get(group), None
        if before is not None or _is_large(store.group):
            ended = self._encodings[group] = self._loop.create_future()
        encoding = self._encoded(group, store, now_ms, before, ended)
        self._write(group, self._write_group(shard, group, store, encoding, saving))

    def _written(self, group: AnyGroup, write: "asyncio.Task[GroupWriteOutcome]") -> None:
        if self._writes.get(group) is write:
            del self._writes[group]

    async def _write_group(
        self,
        shard: Shard,
        group: ClassicGroup,
        store: Store,
        encoding: Awaitable[bytes | None],
        saving: SavedValue,
    ) -> GroupWriteOutcome:
        value = await encoding
        if shard.groups.get(group.group_id) is not group:
            # The group was deleted meanwhile: its record must not come back.
            shard.not_saved(group.group_id, saving)
            return GroupWriteOutcome()
        code = ErrorCode.none
        try:
            if value is None:
                message = f"The subscriptions and assignments of a group have more than {BATCH_BYTES_MAX} bytes."
                raise Refused(ErrorCode.message_too_large, message)
            await self._state_store.write(shard, {}, {group.group_id: value})
            shard.saved(group.group_id, saving)
        except Refused as refusal:
            code = _code_of(refusal)
            shard.not_saved(group.group_id, saving)
            _events.warning("group.not_written", group=group.group_id, error=str(refusal))
        await self.settled(shard, group.group_id)
        if shard.groups.get(group.group_id) is group:
            group.stored(store, code, self.now_ms())
            self.perform(shard, group)
        # Each record has the whole group: a later one lacks nothing.
        return GroupWriteOutcome(code)

    async def _encoded(
        self,
        group: ClassicGroup,
        store: Store,
        now_ms: int,
        before: asyncio.Future[None] | None,
        ended: asyncio.Future[None] | None,
    ) -> bytes | None:
        """Return the record of a group; None if it is too large, which is found before it is encoded.

        That of a large one is encoded in turns, after `before`, until `ended`.
        """
        if ended is None:
            return at_once(encode_group(store.group, now_ms))
        if before is not None:
            await before
        value = None
        if _content_bytes(store.group) <= BATCH_BYTES_MAX:
            value = await self._turns.run(encode_group(store.group, now_ms))
            # The append of many megabytes is an iteration's work.
            await asyncio.sleep(0)
        if self._encodings.get(group) is ended:
            del self._encodings[group]
        # The next record of the group waits for this, and is appended after the caller has appended its own.
        ended.set_result(None)
        return value

    def _await_deadline(self, shard: Shard, group: AnyGroup) -> None:
        deadline_ms = group.next_deadline()
        if deadline_ms is None:
            self._drop_deadline(group)
            return
        self._deadlines.put(group, deadline_ms)
        self._shards[group] = shard
        self._clock.watch()
        self._set_timer()

    def _drop_deadline(self, group: AnyGroup) -> None:
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
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._deadline), at

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


def _is_large(group: SavedGroup) -> bool:
    """Return whether a group's record is encoded in turns."""
    return len(group.members) > FREE_STEPS or _content_bytes(group) > ENCODED_AT_ONCE_BYTES_MAX


def _content_bytes(group: SavedGroup) -> int:
    return sum(len(member.subscription) + len(member.assignment) for member in group.members)


def _code_of(refusal: Refused) -> ErrorCode:
    """Return the code for a client whose group could not be written: no smaller request of it would help."""
    is_large = refusal.code is ErrorCode.message_too_large
    return ErrorCode.unknown_server_error if is_large else refusal.code
