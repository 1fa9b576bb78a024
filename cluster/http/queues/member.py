"""A member of a share group for the HTTP clients of one user at one broker: it acquires records when they ask.

A long poll of one client must not delay the acknowledgement of another one: while clients hold records, a poll of a
leader is short. Records that a client did not take go to the next one, or are released after a while.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.http.bodies import Streams
from cordwood.cluster.http.queues.acquired import AcquiredBatches, AcquiredRecord, acquired_in
from cordwood.cluster.http.queues.deliveries import Deliveries, QueueOffset, QueuePartition, record_of
from cordwood.cluster.http.queues.membership import GroupMembership
from cordwood.cluster.http.queues.session import GAP, RELEASE, RENEW, Ack, LeaderSession, SessionOver
from cordwood.cluster.http.refusal import HttpRefusal, refusal_of, status_of
from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.metadata.image import NO_LEADER, Image
from cordwood.cluster.operations.queue_receipts import SECRET_BYTES, Receipt
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.replication.tasks import Tasks

DENIED = 403
FETCH_RECORDS_MAX = 500
POLL_S, BUSY_POLL_S = 0.5, 0.05
"""Long poll of a leader, without and with records that clients hold."""
RETRY_S = 0.2
PATIENCE_S = 3.0
"""A client that does not wait gets this long for the member to join, and for each leader to answer once."""
FRESH_SHARE = 3
"""Records that no client took within this part of their lock are released."""
IDLE_S = 60.0
"""A member without clients leaves its group after this time."""

_events = structlog.get_logger("http")


class Acquisition(NamedTuple):
    """The lock of what one response has of a partition."""

    place: QueuePartition
    session: LeaderSession
    acquired_at: float
    lock_s: float

    def is_stale(self, now: float) -> bool:
        """Return whether no client has taken it for so long that it is released."""
        return now - self.acquired_at > self.lock_s / FRESH_SHARE


class Ready(NamedTuple):
    """A decoded record that no client has yet."""

    lock: Acquisition
    record: AcquiredRecord


class UndecodedBatches(NamedTuple):
    """Acquired batches that are not decoded to their end."""

    lock: Acquisition
    batches: AcquiredBatches


class Taken(NamedTuple):
    """A record for a client."""

    place: QueuePartition
    record: AcquiredRecord
    receipt: Receipt


class TakeAnswer(NamedTuple):
    """The records that a client gets, locked for `lock_ms` from now on."""

    records: Sequence[Taken]
    lock_ms: int


@dataclass(eq=False, slots=True)
class QueueClient:
    """A client that waits for records."""

    records_max: int
    bytes_max: int
    deadline: float
    last: float
    """When it gets an empty answer even if not every leader has been asked."""
    answer: "asyncio.Future[TakeAnswer]"
    asked: set[int] = field(default_factory=set)
    """The leaders that had no records for this request."""


@dataclass(eq=False, slots=True)
class Settlement:
    """Acknowledgements of one type that are on their way to one leader."""

    acknowledge_type: int
    receipts: list[Receipt] = field(default_factory=list)
    task: "asyncio.Task[None]" = field(init=False)
    outcomes: dict[Receipt, ErrorCode] = field(default_factory=dict)
    """Complete once the task has ended, unless the member was closed meanwhile."""


class QueueContext(NamedTuple):
    """The dependencies of a member in its broker."""

    broker_id: int
    image: Callable[[], Image]
    decoding: DecodeQueue
    streams: Streams
    random_bytes: Callable[[int], bytes]


class QueueMember:
    """One member. Its number names it in receipts."""

    def __init__(
        self,
        number: int,
        member_id: str,
        group_id: str,
        topics: tuple[str, ...],
        cluster: ClusterClient,
        context: QueueContext,
        refuse_more: Callable[[], None],
    ) -> None:
        """`refuse_more` raises HttpRefusal while clients hold too many records."""
        self.number, self.member_id, self.group_id, self.topics = number, member_id, group_id, topics
        self._cluster, self._context, self._refuse_more = cluster, context, refuse_more
        self._now = asyncio.get_running_loop().time
        self._membership = GroupMembership(cluster, group_id, member_id, topics, self._feed)
        self._sessions: dict[int, LeaderSession] = {}
        self._feeding: set[int] = set()
        """The leaders that are being polled."""
        self._fetched: deque[UndecodedBatches] = deque()
        self._decoding = asyncio.Lock()
        self._ready: deque[Ready] = deque()
        self._waiting: deque[QueueClient] = deque()
        self._settling: dict[Receipt, Settlement] = {}
        """The receipts whose acknowledgements are on their way."""
        self._tasks = Tasks()
        self._used_at = self._now()
        self.deliveries = Deliveries()
        self.refusal: HttpRefusal | None = None
        """Why the member has ended."""

    def start(self) -> None:
        self._tasks.spawn(self._stay(), "a queue's member")

    async def close(self) -> None:
        """Leave the group, and release all records."""
        self._fail(refusal_of(ErrorCode.broker_not_available))
        await self._tasks.close()
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        await self._membership.leave()

    @property
    def is_idle(self) -> bool:
        """True if no client has used it for a while, and none holds a record of it."""
        return not self._waiting and not len(self.deliveries) and self._now() - self._used_at > IDLE_S

    @property
    def is_free(self) -> bool:
        """True if no client waits for it or holds a record of it."""
        return not self._waiting and not len(self.deliveries)

    async def take(self, records_max: int, bytes_max: int, wait_s: float) -> TakeAnswer:
        """Return records, as soon as there are some; none after `wait_s`. Raises HttpRefusal."""
        now = self._now()
        self._used_at = now
        if self.refusal is not None:
            raise self.refusal
        future: asyncio.Future[TakeAnswer] = asyncio.get_running_loop().create_future()
        waiter = QueueClient(records_max, bytes_max, now + wait_s, now + max(wait_s, PATIENCE_S), future)
        self._waiting.append(waiter)
        try:
            if not self._fetched:
                self._serve()
            self._feed()
            while not future.done():
                now = self._now()
                if now >= waiter.last or (now >= waiter.deadline and self._has_asked_all(waiter)):
                    return TakeAnswer((), 0)
                until = waiter.deadline if now < waiter.deadline else waiter.last
                await asyncio.wait((future,), timeout=until - now)
            return future.result()
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result().records)
            raise
        finally:
            self._used_at = self._now()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def give_back(self, taken: Iterable[Taken]) -> None:
        """Release the records of a client that has disconnected: they go to the next one at once."""
        self._tasks.spawn(self.acknowledge([one.receipt for one in taken], RELEASE), "give records back")

    async def acknowledge(self, receipts: Sequence[Receipt], acknowledge_type: int) -> list[ErrorCode]:
        """Acknowledge deliveries. Return the outcome of each.

        An acknowledgement continues if its client disconnects. A request that repeats it waits for the same outcome,
        and one of another type is handled after it.
        """
        self._used_at = self._now()
        outcomes: dict[Receipt, ErrorCode] = {}
        left = list(dict.fromkeys(receipts))
        while left:
            settlements = self._begin_to_settle(left, acknowledge_type, outcomes)
            if settlements:
                await asyncio.wait({settlement.task for settlement in settlements.values()})
            left = []
            for receipt, settlement in settlements.items():
                if settlement.acknowledge_type == acknowledge_type:
                    outcomes[receipt] = settlement.outcomes.get(receipt, ErrorCode.request_timed_out)
                else:
                    left.append(receipt)
        return [outcomes[receipt] for receipt in receipts]

    def lock_ms(self) -> int:
        """Return the duration of locks in the newest answers of the leaders."""
        return min((session.lock_ms for session in self._sessions.values() if session.lock_ms), default=0)

    async def look(self) -> None:
        """Forget deliveries whose locks have ended, and release records that no client takes. Called each second."""
        while self.deliveries.sweep(self._now_ms()):
            await asyncio.sleep(0)
        now = self._now()
        self._feed()
        stale: defaultdict[LeaderSession, list[Ack]] = defaultdict(list)
        while self._ready and self._ready[0].lock.is_stale(now):
            lock, record = self._ready.popleft()
            stale[lock.session].append(Ack(lock.place, record.offset, record.offset, RELEASE))
        while self._fetched and self._fetched[0].lock.is_stale(now):
            lock, batches = self._fetched.popleft()
            stale[lock.session] += _acks(lock.place, batches.take_rest(), RELEASE)
        for session, acks in stale.items():
            self._acknowledge_later(session, acks)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _begin_to_settle(
        self, receipts: Iterable[Receipt], acknowledge_type: int, outcomes: dict[Receipt, ErrorCode]
    ) -> dict[Receipt, Settlement]:
        """Note the outcomes that are known. Return the settlements of the other receipts, which are under way."""
        new: dict[int, Settlement] = {}
        now_ms = self._now_ms()
        settlements: dict[Receipt, Settlement] = {}
        for receipt in receipts:
            settlement = self._settling.get(receipt)
            if settlement is None and (found := self.deliveries.find(receipt, now_ms)) is not None:
                settlement = new.get(found.leader)
                if settlement is None:
                    settlement = new[found.leader] = Settlement(acknowledge_type)
                    # The task begins later: by then the settlement has all its receipts.
                    settlement.task = self._tasks.spawn(self._settle(found.leader, settlement), "settle records")
                settlement.receipts.append(receipt)
                self._settling[receipt] = settlement
            if settlement is not None:
                settlements[receipt] = settlement
            else:
                is_done = self.deliveries.was_done(receipt, acknowledge_type)
                outcomes[receipt] = ErrorCode.none if is_done else ErrorCode.invalid_record_state
        return settlements

    async def _settle(self, leader: int, settlement: Settlement) -> None:
        """Acknowledge the deliveries of one leader, and note the outcomes."""
        session = self._sessions.get(leader)
        try:
            if session is None or not session.is_open:
                self.deliveries.end_session(leader)
                settlement.outcomes = dict.fromkeys(settlement.receipts, ErrorCode.invalid_record_state)
            else:
                await self._settle_in(session, settlement)
        finally:
            for receipt in settlement.receipts:
                del self._settling[receipt]

    async def _settle_in(self, session: LeaderSession, settlement: Settlement) -> None:
        receipts, acknowledge_type = settlement.receipts, settlement.acknowledge_type
        acks = [Ack(*record_of(receipt), receipt.offset, acknowledge_type) for receipt in receipts]
        codes = await session.acknowledge(acks)
        now_ms = self._now_ms()
        for receipt, code in zip(receipts, codes, strict=True):
            settlement.outcomes[receipt] = code
            if code is ErrorCode.none and acknowledge_type == RENEW:
                self.deliveries.renew(receipt, now_ms, now_ms + session.lock_ms)
            elif code is ErrorCode.none:
                self.deliveries.finish(receipt, acknowledge_type)
            elif code in (ErrorCode.invalid_record_state, ErrorCode.not_leader_or_follower):
                self.deliveries.drop(receipt)

    async def _stay(self) -> None:
        try:
            await self._membership.run()
        except HttpRefusal as refusal:
            self._fail(refusal)

    def _fail(self, refusal: HttpRefusal) -> None:
        """End the member: clients get an error, and the next one a new member."""
        self.refusal = self.refusal or refusal
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.answer.done():
                waiter.answer.set_exception(refusal)

    def _leaders(self) -> dict[int, frozenset[QueuePartition]]:
        """Return the assigned partitions by their leaders."""
        topics = self._context.image().topics_by_id
        led: defaultdict[int, set[QueuePartition]] = defaultdict(set)
        for place in self._membership.places:
            topic = topics.get(place.topic_id)
            if topic is not None and place.partition < len(topic.partitions):
                leader = topic.partitions[place.partition].leader
                if leader != NO_LEADER:
                    led[int(leader)].add(place)
        return {leader: frozenset(places) for leader, places in led.items()}

    def _has_asked_all(self, waiter: QueueClient) -> bool:
        return self._membership.has_joined and self._leaders().keys() <= waiter.asked

    def _feed(self) -> None:
        """Poll every leader while clients wait."""
        if self._waiting and self.refusal is None:
            for leader in self._leaders().keys() - self._feeding:
                self._feeding.add(leader)
                self._tasks.spawn(self._feed_from(leader), "take over HTTP")

    async def _feed_from(self, leader: int) -> None:
        try:
            while self._waiting and (places := self._leaders().get(leader)):
                # Records that were fetched before come first.
                if await self._decode():
                    continue
                try:
                    session = await self._session(leader)
                    is_served = await self._poll(session, places)
                except (SessionOver, Unanswered, Malformed) as error:
                    if isinstance(error, SessionOver) and status_of(error.code) == DENIED:
                        raise refusal_of(error.code) from None
                    _events.info("queue.session_over", group=self.group_id, leader=leader, reason=str(error))
                    self._drop_session(leader)
                    is_served = False
                if not is_served:
                    await asyncio.sleep(RETRY_S)
        except HttpRefusal as refusal:
            self._fail(refusal)
        finally:
            self._feeding.discard(leader)

    async def _session(self, leader: int) -> LeaderSession:
        """Return the session at a leader. Raises Unanswered."""
        session = self._sessions.get(leader)
        if session is not None and session.is_open:
            return session
        self._drop_session(leader)
        connection = await self._cluster.open(leader)
        session = LeaderSession(connection, leader, self.group_id, self.member_id)
        self._sessions[leader] = session
        return session

    def _drop_session(self, leader: int) -> None:
        session = self._sessions.pop(leader, None)
        if session is not None:
            self._tasks.spawn(session.close())
            self._ready = deque(one for one in self._ready if one.lock.session is not session)
            self.deliveries.end_session(leader)

    async def _poll(self, session: LeaderSession, places: frozenset[QueuePartition]) -> bool:
        """Acquire records for the clients that wait. Return whether the leader served each partition.

        Raises SessionOver, Malformed, HttpRefusal.
        """
        waiting = list(self._waiting)
        now = self._now()
        wanted = min(sum(waiter.records_max for waiter in waiting), FETCH_RECORDS_MAX)
        poll_s = BUSY_POLL_S if len(self.deliveries) else POLL_S
        # Clients whose time has passed wait for another leader, which is slow: this one is not asked all the time.
        wait_s = min(max(max(waiter.deadline for waiter in waiting) - now, BUSY_POLL_S), poll_s)
        if any(session.leader not in waiter.asked for waiter in waiting):
            # A client that waits for records of any leader gets this one's first. The leader of a new session may have
            # to read the states of its share partitions.
            wait_s = BUSY_POLL_S if session.is_new else 0.0
        response = await session.fetch(places, wanted, wait_s)
        acquired_at, is_served = self._now(), True
        for topic in response.responses:
            for row in topic.partitions:
                place = QueuePartition(topic.topic_id, row.partition_index)
                is_served &= self._take_in(session, place, row, acquired_at)
        await self._decode()
        for waiter in waiting:
            waiter.asked.add(session.leader)
        self._answer_overdue()
        # Partitions may have new leaders.
        self._feed()
        return is_served

    def _take_in(self, session: LeaderSession, place: QueuePartition, row: Any, acquired_at: float) -> bool:
        """Take acquired batches. Return whether the leader served the partition. Raises Malformed, HttpRefusal."""
        code = row.error_code
        if code is not ErrorCode.none:
            if status_of(code) == DENIED:
                raise refusal_of(code, row.error_message)
            return False
        if acquired := acquired_in(row):
            lock = Acquisition(place, session, acquired_at, session.lock_ms / 1000)
            self._fetched.append(UndecodedBatches(lock, AcquiredBatches(bytes(row.records or b""), acquired)))
        return True

    async def _decode(self) -> bool:
        """Decode the records that waiting clients can take, and serve them. Return whether any got records.

        The rest stays undecoded, so that it takes no more memory than it took on the network.
        """
        is_any_served = False
        async with self._decoding:
            while self._waiting and self._fetched:
                fetched = self._fetched.popleft()
                lock, batches = fetched
                session = lock.session
                try:
                    decoded = await batches.next(self._context.decoding, self._context.streams)
                except Malformed as error:
                    _events.info("queue.session_over", group=self.group_id, leader=session.leader, reason=str(error))
                    self._drop_session(session.leader)
                    continue
                if self._sessions.get(session.leader) is not session:
                    # Its locks ended with its session.
                    continue
                if not batches.is_over:
                    self._fetched.appendleft(fetched)
                self._ready += [Ready(lock, record) for record in decoded.records]
                self._acknowledge_later(session, _acks(lock.place, decoded.gaps, GAP))
                while self._waiting and self._is_enough_for(self._waiting[0]):
                    is_any_served |= self._serve_first()
            is_any_served |= self._serve()
        return is_any_served

    def _is_enough_for(self, waiter: QueueClient) -> bool:
        """Return whether the decoded records reach the client's limits."""
        content_bytes = 0
        for count, ready in enumerate(self._ready, 1):
            content_bytes += ready.record.content_bytes
            if count >= waiter.records_max or content_bytes >= waiter.bytes_max:
                return True
        return False

    def _acknowledge_later(self, session: LeaderSession, acks: Sequence[Ack]) -> None:
        if acks and session.is_open:
            self._tasks.spawn(session.acknowledge(acks))

    def _serve(self) -> bool:
        """Give the decoded records to the clients that wait, the first one first. Return whether any got some."""
        is_any_served = False
        while self._waiting and self._ready:
            is_any_served |= self._serve_first()
        return is_any_served

    def _serve_first(self) -> bool:
        """Give decoded records to the first client that waits.

        Return False if it has disconnected, or may not hold more.
        """
        waiter = self._waiting.popleft()
        if waiter.answer.done():
            return False
        try:
            self._refuse_more()
        except HttpRefusal as refusal:
            waiter.answer.set_exception(refusal)
            return False
        waiter.answer.set_result(self._hand_out(waiter))
        return True

    def _answer_overdue(self) -> None:
        now = self._now()
        for waiter in list(self._waiting):
            if now >= waiter.deadline and self._has_asked_all(waiter) and not waiter.answer.done():
                self._waiting.remove(waiter)
                waiter.answer.set_result(TakeAnswer((), 0))

    def _hand_out(self, waiter: QueueClient) -> TakeAnswer:
        """Take records for a client, up to its limits and at least one."""
        secret = self._context.random_bytes(SECRET_BYTES)
        bytes_left, taken = waiter.bytes_max, list[Ready]()
        while self._ready and len(taken) < waiter.records_max and bytes_left > 0:
            ready = self._ready.popleft()
            bytes_left -= ready.record.content_bytes
            taken.append(ready)
        until = min(ready.lock.acquired_at + ready.lock.lock_s for ready in taken)
        for session, of_session in _by_session(taken).items():
            places = [QueueOffset(ready.lock.place, ready.record.offset) for ready in of_session]
            self.deliveries.add(session.leader, places, secret, int(until * 1000))
        records = [
            Taken(
                ready.lock.place,
                ready.record,
                Receipt(self._context.broker_id, self.number, *ready.lock.place, ready.record.offset, secret),
            )
            for ready in taken
        ]
        return TakeAnswer(records, max(int((until - self._now()) * 1000), 0))


def _acks(place: QueuePartition, offsets: Iterable[range], acknowledge_type: int) -> list[Ack]:
    return [Ack(place, each.start, each.stop - 1, acknowledge_type) for each in offsets]


def _by_session(taken: Iterable[Ready]) -> dict[LeaderSession, list[Ready]]:
    by_session: defaultdict[LeaderSession, list[Ready]] = defaultdict(list)
    for ready in taken:
        by_session[ready.lock.session].append(ready)
    return by_session
