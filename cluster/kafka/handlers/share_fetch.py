"""ShareFetch (78): records for a member of a share group, locked for it, and its acknowledgements (KIP-932).

A response has whole batches as they are in the log, and the ranges of their records that the member has acquired.

Version notes: 2 adds the limit of records that is kept exactly (KIP-1206), and the renewal of locks (KIP-1222).
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2.request import ShareFetchRequest

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call, Services, Work
from cordwood.cluster.kafka.codec import RequestHead, decoding, upgrade_request
from cordwood.cluster.kafka.handlers.share_acknowledge import batches_in
from cordwood.cluster.kafka.refusals import EXPECTED
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, Right, Rights
from cordwood.cluster.kafka.share_batches import FoundBatches, find_batches
from cordwood.cluster.kafka.share_fetch_response import ShareFetchRow, encode
from cordwood.cluster.kafka.share_lookup import (
    NotAnswered,
    PartitionAcks,
    acknowledge,
    leader_of,
    member_of,
    not_answered,
    partition_of,
    stored,
)
from cordwood.cluster.kafka.share_states import NO_ID
from cordwood.cluster.kafka.wire import Malformed, decoded_bytes
from cordwood.cluster.share.led_share_partition import LedSharePartition
from cordwood.cluster.share.share_partitions import Opening, SharePartitions, opened
from cordwood.cluster.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, MemberKey, PartitionId, ShareSession
from cordwood.cluster.share.states import SharePartitionKey
from cordwood.cluster.tiering.reads import WantedRange
from cordwood.replication.partition import Partition
from cordwood.storage.errors import DamagedLog, NotInMemory

KEY = ApiKey.SHARE_FETCH
RIGHTS: Rights = (Right(READ, GROUP), Right(READ, TOPIC, "each topic without it is refused by itself"))

RECORD_LIMIT = 1
"""The acquire mode in which at most the requested number of records is acquired (KIP-1206)."""
TRIES_MAX = 128
"""Reads of one partition in one attempt, where each finds only batches that are delivered to no one."""
ABOVE_ANY = 1 << 30
"""A number of records that no range exceeds."""


class ShareFetchHandler:
    """The handler of ShareFetch requests."""

    def __init__(self, services: Services, response_bytes_max: int) -> None:
        self._services, self._response_bytes_max = services, response_bytes_max

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> Work | None:
        """Return the work of a request; None if it is handled again later. Raises Malformed."""
        if head.version not in KEY.versions:
            raise Malformed(f"ShareFetch in version {head.version}, which is not supported")
        if not slot.reserve(decoded_bytes(slot.size), alone=True):
            return None
        return partial(self._handle, head, slot.connection.keep(frame), slot)

    async def close(self) -> None:
        """Do nothing: the dispatcher cancels the requests."""

    async def _handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> None:
        services, connection = self._services, slot.connection
        call = Call(
            services,
            head.version,
            head.client_id,
            connection.client_host,
            connection.listener,
            connection.number,
            connection.identity,
            connection.software,
        )
        try:
            request = await services.turns.run(decoding(KEY, head.version, frame, head.body))
            if head.version != KEY.versions[-1]:
                request = upgrade_request(KEY, head.version, KEY.versions[-1])(request)
            await self._answer(head, request, slot, call)
        finally:
            connection.thaw(shrinks=True)

    async def _answer(self, head: RequestHead, request: ShareFetchRequest, slot: Slot, call: Call) -> None:
        throttle = self._services.throttle
        lock_ms = self._services.share.config_of(request.group_id or "").record_lock_ms
        rows: list[ShareFetchRow] = []
        code, message = ErrorCode.none, None
        fetch = ShareFetch(request, call, slot, self._bytes_max(request, head, slot))
        try:
            rows = await fetch.run()
        except Refused as refusal:
            code, message = refusal.code, refusal.message
            slot.refused(int(code))
            lock_ms = 0
        if throttle.is_active:
            throttle.fetched(head, slot, fetch.size)
            throttle.mute(slot)
        slot.hold(fetch.copied_bytes)
        # The encoder frees the rows in steps.
        del fetch
        slot.fill(await call.turns.run(encode(head, rows, lock_ms, slot.throttle_ms, code, message)))

    def _bytes_max(self, request: ShareFetchRequest, head: RequestHead, slot: Slot) -> int:
        bytes_max = int(min(request.max_bytes, self._response_bytes_max))
        throttle = self._services.throttle
        if not throttle.is_active:
            return bytes_max
        if throttle.refuses_data(head, slot):
            return 0
        return throttle.fetch_bytes_max(slot.connection.identity, head.client_id, bytes_max)


async def handle(_request: ShareFetchRequest, _call: Call) -> Any:
    """Do nothing: the dispatcher passes these requests to `ShareFetchHandler`."""
    raise AssertionError("ShareFetch is answered by ShareFetchHandler")


class ShareFetch:
    """One request: its acknowledgements, then acquisitions until there are any, or the wait has ended."""

    def __init__(self, request: ShareFetchRequest, call: Call, slot: Slot, bytes_max: int) -> None:
        self._request, self._call, self._slot, self._bytes_left = request, call, slot, bytes_max
        self._share: SharePartitions = call.services.share
        self._is_strict = request.share_acquire_mode == RECORD_LIMIT
        self._records_left = request.max_records
        self._wait = DelayedShareFetch()
        self._rows: dict[PartitionId, ShareFetchRow] = {}
        self._has_result = False
        """Whether a row has an error, or records."""
        self._must_answer: set[PartitionId] = set()
        """Partitions that the response has in any case."""
        self.size = self.copied_bytes = 0
        """Bytes of all acquired batches, and of those that are not slices of the log."""

    async def run(self) -> list[ShareFetchRow]:
        """Return the rows of the response. Raises Refused."""
        request, call = self._request, self._call
        member = member_of(request.group_id, request.member_id, call)
        renews = request.is_renew_ack
        if renews:
            _check_renewal(request)
        rows = call.turns.within((topic, topic.partitions) for topic in request.topics)
        acks = [
            PartitionAcks(_place_of(topic, row), await batches_in(row.acknowledgement_batches, call))
            async for topic, row in rows
            if row.acknowledgement_batches
        ]
        rows = call.turns.within((topic, topic.partitions) for topic in request.topics)
        wanted = [_place_of(topic, row) async for topic, row in rows]
        indexes = call.turns.within((topic, topic.partitions) for topic in request.forgotten_topics_data)
        forgotten = [(topic.topic_id or NO_ID, index) async for topic, index in indexes]
        session = await self._session(member, acks, wanted, forgotten)
        results = await acknowledge(member, acks, call, is_renewal=renews)
        if request.share_session_epoch == FINAL_EPOCH:
            if (ended := self._share.sessions.end(member)) is not None:
                self._share.session_ended(ended)
        elif not renews and self._records_left > 0 and self._bytes_left > 0:
            await self._fetch(member, session)
        for one, outcome in zip(acks, await stored(results), strict=True):
            self._must_answer.add(one.place)
            if outcome is not None:
                row = self._row(one.place)
                row.acknowledge_code, row.acknowledge_message = outcome
                self._find_leader(row, outcome.code)
        return await self._answered(session)

    async def _session(
        self,
        member: MemberKey,
        acks: Sequence[PartitionAcks],
        wanted: Sequence[PartitionId],
        forgotten: Sequence[PartitionId],
    ) -> ShareSession:
        """Return the session of the request. Raises Refused."""
        request, sessions = self._request, self._share.sessions
        if request.share_session_epoch == INITIAL_EPOCH:
            if acks:
                raise Refused(ErrorCode.invalid_request, "The first request of a session cannot acknowledge records.")
            connection = self._slot.connection
            connection.ended.setdefault(self._share.connection_ended, None)
            session = sessions.open(member, connection)
            await self._call.turns.run(sessions.change(session, wanted))
            await self._share.session_opened(session)
            return session
        session = sessions.use(member, request.share_session_epoch)
        if request.share_session_epoch != FINAL_EPOCH:
            await self._call.turns.run(sessions.change(session, wanted, forgotten))
        return session

    async def _fetch(self, member: MemberKey, session: ShareSession) -> None:
        """Acquire records; if there are too few, wait for more until the request's maximum wait has passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait / timedelta(seconds=1)
        wanted = session.in_turn()
        try:
            while self._is_wanted(session):
                is_last_chance = loop.time() >= deadline
                self._wait.begin()
                await self._attempt(member, wanted, is_last_chance=is_last_chance)
                if is_last_chance or self._has_result:
                    return
                await self._wait.until(deadline)
        finally:
            self._wait.leave()
            self._share.leave(self._wait)

    def _is_wanted(self, session: ShareSession) -> bool:
        return self._slot.connection.is_open and self._share.sessions.is_open(session)

    async def _attempt(self, member: MemberKey, wanted: Iterable[PartitionId], *, is_last_chance: bool) -> None:
        """Acquire from each partition at hand until the limits are reached."""
        at_hand = await self._find_all(member, wanted)
        if not is_last_chance and self._request.min_bytes > 1:
            sizes = [await self._size(led) async for led in self._call.turns.each(at_hand)]
            if sum(sizes) < min(self._request.min_bytes, self._bytes_left):
                return
        async for led in self._call.turns.each(at_hand):
            if self._records_left <= 0 or self._bytes_left <= 0:
                break
            if self._records_left < self._request.max_records and self._wait.has_waited_for(led.key):
                # As in Kafka, the first state that is read ends the wait: the next request gets the records of others.
                continue
            try:
                await self._acquire(member, led)
            except (Refused, *EXPECTED) as error:
                self._fail(_place(led), not_answered(error))
                if isinstance(error, DamagedLog):
                    led.partition.report_damage(error)

    async def _find_all(self, member: MemberKey, wanted: Iterable[PartitionId]) -> list[LedSharePartition]:
        """Watch the partitions. Return those at hand."""
        at_hand: list[LedSharePartition] = []
        async for place in self._call.turns.each(wanted):
            try:
                led = self._find_or_begin(SharePartitionKey(member.group_id, *place))
            except (Refused, *EXPECTED) as error:
                self._fail(place, not_answered(error))
                continue
            if led is not None:
                at_hand.append(led)
                self._wait.watch(led)
        return at_hand

    def _find_or_begin(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition; None while its state is being read. Raises Refused, and one of EXPECTED.

        Records at hand do not wait for it: the reading continues after the response, or ends the wait of this request.
        """
        partition = partition_of((key.topic_id, key.partition), self._call)
        led = self._share.find(key)
        if led is None:
            self._wait.check(key)
            opening = self._share.begin_to_open(key, partition, self._wait)
            if opening is not None:
                self._wait.wait_for(key, opening)
        return led

    async def _acquire(self, member: MemberKey, led: LedSharePartition) -> None:
        """Acquire records of one partition. Raises Refused, and one of EXPECTED."""
        for _ in range(TRIES_MAX):
            await self._call.turns.turn()
            offset = led.state.next_fetch_offset()
            found = None if offset is None else await self._find(led, offset, self._bytes_left, self._records_left)
            if found is None or offset is None or not led.is_current or not self._slot.connection.is_open:
                return
            start = led.state.start_offset
            acquired = self._share.acquire(
                led,
                member.member_id,
                offset,
                found.batches,
                self._records_left,
                batch_size=self._request.batch_size if not self._is_strict else ABOVE_ANY,
                is_strict=self._is_strict,
            )
            if acquired:
                row = self._row(_place(led))
                row.records, row.acquired = found.holding(acquired), acquired
                self._has_result = True
                self._records_left -= sum(end - start for start, end, _ in acquired)
                self._bytes_left -= row.size
                self.size += row.size
                self.copied_bytes += row.size if isinstance(row.records, bytes) else 0
                return
            if led.state.start_offset == start and led.state.next_fetch_offset() == offset:
                return

    async def _find(self, led: LedSharePartition, offset: int, bytes_max: int, records_max: int) -> FoundBatches | None:
        """Read batches, in a thread if they are not in memory."""
        is_read_committed = self._share.config_of(led.key.group_id).is_read_committed
        partition = led.partition
        end = partition.last_stable_offset if is_read_committed else partition.high_watermark
        if offset >= end:
            return None

        def find(wait: bool) -> FoundBatches | None:
            wanted = WantedRange(offset, bytes_max, end, is_read_committed, wait, may_load=not wait)
            return find_batches(partition, wanted, records_max)

        try:
            return find(wait=False)
        except NotInMemory:
            return cast("FoundBatches | None", await partition.directory.run_blocking(find, True))

    async def _size(self, led: LedSharePartition) -> int:
        """Return the bytes that may be acquired from a partition, up to the request's limit."""
        offset = led.state.next_fetch_offset()
        try:
            found = None if offset is None else await self._find(led, offset, self._bytes_left, 1)
        except EXPECTED:
            return 0
        return 0 if found is None else found.slice.size

    def _row(self, place: PartitionId) -> ShareFetchRow:
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = ShareFetchRow(place)
        return row

    def _fail(self, place: PartitionId, why: NotAnswered) -> None:
        row = self._row(place)
        row.code, row.message = int(why.code), why.message
        self._has_result = True
        self._slot.refused(row.code)
        self._find_leader(row, why.code)

    def _find_leader(self, row: ShareFetchRow, code: ErrorCode) -> None:
        if code is ErrorCode.not_leader_or_follower:
            row.leader = leader_of(row.place, self._call)

    async def _answered(self, session: ShareSession) -> list[ShareFetchRow]:
        """Return the rows with records, errors or acknowledgements, and those that are new in the session."""
        partitions, turns = session.partitions, self._call.turns
        async for place, is_due in turns.each(list(partitions.items())):
            if is_due:
                self._must_answer.add(place)
        async for place in turns.each(self._must_answer):
            self._row(place)
        async for place, row in turns.each(self._rows.items()):
            if place in partitions:
                partitions[place] = bool(row.code)
        return list(self._rows.values())


class DelayedShareFetch:
    """The wait of one request for records: it ends when one of its partitions changes, or when its state is read."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._partitions: dict[Partition, None] = {}
        self._led: dict[LedSharePartition, None] = {}
        self._openings: dict[SharePartitionKey, Opening] = {}

    def begin(self) -> None:
        """Note changes from here on."""
        self._changed.clear()

    def watch(self, led: LedSharePartition) -> None:
        """Watch a share partition, and its log."""
        self._led[led] = self._partitions[led.partition] = None
        led.watchers[self] = led.partition.watchers[self] = None

    def wait_for(self, key: SharePartitionKey, opening: Opening) -> None:
        """Wait for the state of a share partition."""
        if self._openings.get(key) is not opening:
            self._openings[key] = opening
            opening.add_done_callback(self._opened)

    def has_waited_for(self, key: SharePartitionKey) -> bool:
        """Return whether this request has waited for the state of a share partition."""
        return key in self._openings

    def check(self, key: SharePartitionKey) -> None:
        """Raise the error of a state that this request has waited for: Refused, or one of EXPECTED."""
        opening = self._openings.get(key)
        if opening is not None and opening.done():
            opened(opening.result())

    async def until(self, deadline: float) -> None:
        """Wait for a change until the deadline, in the event loop's time."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            pass

    def leave(self) -> None:
        """Watch nothing any more."""
        for led in self._led:
            led.watchers.pop(self, None)
        for partition in self._partitions:
            partition.watchers.pop(self, None)
        for opening in self._openings.values():
            opening.remove_done_callback(self._opened)
        self._led.clear()
        self._partitions.clear()
        self._openings.clear()

    def wake(self) -> None:
        self._changed.set()

    def fail(self, _error: Exception) -> None:
        self._changed.set()

    def _opened(self, _opening: Opening) -> None:
        self._changed.set()


def _place(led: LedSharePartition) -> PartitionId:
    return led.key.topic_id, led.key.partition


def _place_of(topic: Any, row: Any) -> PartitionId:
    return topic.topic_id or NO_ID, row.partition_index


def _check_renewal(request: ShareFetchRequest) -> None:
    """Check a request that renews locks: it fetches nothing, or the locks might end meanwhile. Raises Refused."""
    limits = request.min_bytes, request.max_bytes, request.max_records, request.max_wait // timedelta(milliseconds=1)
    if any(limits) or not all(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
        raise Refused(ErrorCode.invalid_request, "A request that renews locks cannot fetch.")
