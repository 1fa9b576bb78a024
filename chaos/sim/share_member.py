"""Simulated members of share groups (KIP-932): they acquire, accept, release, reject, renew, and die with locks."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN, AckType, Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import decoded
from cordwood.chaos.sim.group_coordinator import MOVED, CoordinatorOfGroup
from cordwood.chaos.sim.kafka import Address, SimulatedClient, duration, message, part
from cordwood.chaos.sim.producer import Alarm
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import split
from cordwood.storage.errors import CorruptBatch

HEARTBEAT_VERSION, FETCH_VERSION, ACKNOWLEDGE_VERSION = 1, 2, 2
JOINING, LEAVING = 0, -1
OPENING, CLOSING = 0, -1
"""Epochs of a share session that begin and end it."""
MAX_EPOCH = (1 << 31) - 1
FETCH_BYTES, MAX_WAIT_S = 64 << 10, 0.1
BEAT_S, IDLE_S = 0.3, 0.1
RENEWED_S = 0.5
SILENCE_S = 5.0
"""Longer than the session of a member, and than a lock."""
SESSION_SHIFT = 16
HOLDS_S = (0.0, 0.0, 0.3, 2.5)
"""How long a member holds records before it acknowledges them. The longest is above the lock's time."""

REFUSED = frozenset(
    {
        ErrorCode.invalid_record_state,
        ErrorCode.invalid_request,
        ErrorCode.share_session_not_found,
        ErrorCode.invalid_share_session_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    }
)
"""Codes of acknowledgements that have no effect."""

Records = dict[int, tuple[int, int]]
"""By offset: value and content."""
LeadingEpoch = Callable[[Address, int], int]
"""Returns the leader epoch in which the broker at an address leads a partition; UNKNOWN if it does not."""


@dataclass(frozen=True, slots=True)
class SharePlan:
    """The parameters of one member program of a share group."""

    group: str
    group_number: int
    has_dead_letters: bool = False
    """Whether the group has a dead-letter topic (KIP-1191)."""
    life_s: float = 5.0
    """The mean time until the member leaves, dies or restarts."""
    release_share: float = 0.1
    reject_share: float = 0.05
    renew_share: float = 0.05
    forget_share: float = 0.05
    """The share of records that are never acknowledged: their lock has to end."""
    records_max: int = 50
    is_record_limited: bool = False
    """Whether a fetch acquires no more records than asked for, in the midst of a batch too (KIP-1206)."""


@dataclass(slots=True)
class _Held:
    """A range of offsets that the member has acquired. `records` are those that have a record."""

    partition: int
    first: int
    last: int
    records: frozenset[int]
    due_s: float
    """When the member is done with these records."""


@dataclass(slots=True)
class _Session:
    """A share session with one broker, which ends with its connection."""

    number: int
    epoch: int = OPENING
    partitions: set[int] = field(default_factory=set)
    held: list[_Held] = field(default_factory=list)

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


Acks = list[tuple[int, int, int, AckType]]
"""Partition, first and last offset, and type, of each acknowledgement of a request."""


class SimulatedShareMember:
    """One member program, with one life after the other. After `rest` it stays, and accepts all that it gets.

    `number` is its number among all consumers.
    """

    def __init__(
        self,
        client: SimulatedClient,
        number: int,
        plan: SharePlan,
        history: HistoryBuilder,
        alarm: Alarm,
        leading_epoch: LeadingEpoch,
    ) -> None:
        self._client, self._number, self._plan, self._history = client, number, plan, history
        self._alarm, self._leading_epoch, self._rng = alarm, leading_epoch, client.rng
        self._coordinator = CoordinatorOfGroup(client, plan.group)
        self._sessions: dict[Address, _Session] = {}
        self._sessions_begun = 0
        self._assigned: tuple[int, ...] = ()
        self._id, self._epoch, self._beat_at_s = "", JOINING, 0.0
        self.is_resting = False

    @property
    def group(self) -> str:
        return self._plan.group

    def rest(self) -> None:
        """Do not leave, die, release or reject any more."""
        self.is_resting = True

    async def run(self) -> None:
        """Run one life after the other, forever."""
        client = self._client
        while client.topic_id is None:
            await client.refresh_patiently()
        while True:
            self._id, self._epoch, self._beat_at_s = str(UUID(int=self._rng.getrandbits(128))), JOINING, 0.0
            self._assigned = ()
            client.did("share-member-joins")
            ends_s = client.loop.time() + self._rng.expovariate(1 / self._plan.life_s)
            while self.is_resting or client.loop.time() < ends_s:
                await self._step()
            await self._end()

    async def _step(self) -> None:
        try:
            if self._client.loop.time() >= self._beat_at_s:
                await self._beat()
            by_leader: dict[Address, list[int]] = defaultdict(list)
            for partition in self._assigned:
                if (address := self._client.leader(partition)) is not None:
                    by_leader[address].append(partition)
            for address, partitions in by_leader.items():
                await self._use(address, partitions)
            if sum(map(len, by_leader.values())) < len(self._assigned):
                # As clients do, until each partition has a leader.
                await self._client.refresh_patiently()
            elif not by_leader:
                await asyncio.sleep(IDLE_S)
        except OSError:
            await self._client.refresh_patiently()

    async def _beat(self) -> None:
        """Send a heartbeat. Raises OSError."""
        client, is_joining = self._client, self._epoch == JOINING
        request = message(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=self.group,
            member_id=self._id,
            member_epoch=self._epoch,
            subscribed_topic_names=(client.topic,) if is_joining else None,
        )
        answer = await self._coordinator.ask(request)
        self._beat_at_s = client.loop.time() + BEAT_S
        code = answer.error_code
        if code is ErrorCode.none:
            self._epoch = int(answer.member_epoch)
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                own = [row.partitions for row in rows if row.topic_id == client.topic_id]
                self._assigned = tuple(sorted(int(partition) for row in own for partition in row))
            return
        if code in MOVED:
            self._coordinator.forget()
        elif code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            client.did("share-member-fenced")
            self._epoch, self._beat_at_s = JOINING, 0.0
        else:
            self._alarm("refused-heartbeat", f"{client.name} got {code!r}: {answer.error_message}")
        raise OSError(code.name)

    async def _use(self, address: Address, partitions: Sequence[int]) -> None:
        """Acknowledge what is done, and fetch from a leader. Raises OSError."""
        client, session = self._client, self._sessions.get(address)
        if session is None:
            client.did("share-session")
            self._sessions_begun += 1
            session = self._sessions[address] = _Session(self._sessions_begun << SESSION_SHIFT | self._number)
        try:
            acks: Acks = []
            if session.epoch != OPENING:
                is_apart = self._rng.random() < 0.5
                acks = self._done(session, may_renew=is_apart)
                if acks and is_apart:
                    await self._acknowledge(address, session, acks)
                    acks = []
            await self._fetch(address, session, partitions, acks)
        except OSError:
            # The connection is gone, or the session, and with it what it held.
            self._sessions.pop(address, None)
            raise

    def _done(self, session: _Session, *, may_renew: bool) -> Acks:
        """Return the acknowledgements of what the member is done with. Some records are forgotten, some renewed."""
        now_s, acks, kept = self._client.loop.time(), Acks(), []
        for held in session.held:
            if held.due_s > now_s and not self.is_resting:
                kept.append(held)
                continue
            decided = [(offset, self._fate(held, offset)) for offset in range(held.first, held.last + 1)]
            if any(fate is AckType.RENEW for _, fate in decided):
                if may_renew:
                    acks.append((held.partition, held.first, held.last, AckType.RENEW))
                    self._client.did("share-renewed")
                held.due_s = now_s + RENEWED_S
                kept.append(held)
                continue
            for fate, run in groupby(decided, lambda each: each[1]):
                offsets = [offset for offset, _ in run]
                if fate is not None:
                    acks.append((held.partition, offsets[0], offsets[-1], fate))
        session.held = kept
        return acks

    def _fate(self, held: _Held, offset: int) -> AckType | None:
        """Return what becomes of a record; None if it is forgotten."""
        plan, dice, did = self._plan, self._rng.random(), self._client.did
        if offset not in held.records:
            return AckType.GAP
        if self.is_resting:
            return AckType.ACCEPT
        for share, fate, what in (
            (plan.release_share, AckType.RELEASE, "share-released"),
            (plan.reject_share, AckType.REJECT, "share-rejected"),
            (plan.renew_share, AckType.RENEW, ""),
            (plan.forget_share, None, "share-forgotten"),
        ):
            if dice < share:
                if what:
                    did(what)
                return fate
            dice -= share
        did("share-accepted")
        return AckType.ACCEPT

    async def _acknowledge(self, address: Address, session: _Session, acks: Acks) -> None:
        """Send acknowledgements without a fetch. Raises OSError."""
        client, api = self._client, ApiKey.SHARE_ACKNOWLEDGE
        request = message(
            api,
            ACKNOWLEDGE_VERSION,
            group_id=self.group,
            member_id=self._id,
            share_session_epoch=session.epoch,
            is_renew_ack=any(kind is AckType.RENEW for *_, kind in acks),
            topics=self._topics(api, "Acknowledge", ACKNOWLEDGE_VERSION, acks, ()),
        )
        invoked_ns, codes = client.now_ns, dict[int, ErrorCode]()
        try:
            answer = await client.ask(address, request)
            if answer.error_code is ErrorCode.none:
                codes = {
                    int(row.partition_index): row.error_code for topic in answer.responses for row in topic.partitions
                }
            elif answer.error_code in REFUSED:
                codes = dict.fromkeys((partition for partition, *_ in acks), answer.error_code)
        finally:
            self._write_acks(session, acks, codes, invoked_ns)
        if answer.error_code is not ErrorCode.none:
            raise OSError(answer.error_code.name)
        session.partitions |= {partition for partition, *_ in acks}
        session.advance()

    async def _fetch(self, address: Address, session: _Session, partitions: Sequence[int], acks: Acks) -> None:
        """Fetch from a leader, with acknowledgements. Raises OSError."""
        client, api = self._client, ApiKey.SHARE_FETCH
        # A partition that is only acknowledged enters the session too.
        entered = {*partitions, *(partition for partition, *_ in acks)}
        gone = tuple(sorted(session.partitions - entered))
        # The metadata may be of a later election: ShareFetch has no leader epoch, and a deposed leader answers it, too.
        epochs = {partition: self._leading_epoch(address, partition) for partition in session.partitions | entered}
        request = message(
            api,
            FETCH_VERSION,
            group_id=self.group,
            member_id=self._id,
            share_session_epoch=session.epoch,
            max_wait=duration(MAX_WAIT_S),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_records=self._rng.randint(1, self._plan.records_max),
            batch_size=self._rng.choice((1, 10, 50)),
            share_acquire_mode=int(self._plan.is_record_limited),
            topics=self._topics(api, "Fetch", FETCH_VERSION, acks, sorted(set(partitions) - session.partitions)),
            forgotten_topics_data=self._forgotten(gone),
        )
        invoked_ns, codes, is_answered = client.now_ns, dict[int, ErrorCode](), False
        try:
            answer = await client.ask(address, request)
            is_answered = answer.error_code is ErrorCode.none
            rows = {int(row.partition_index): row for topic in answer.responses for row in topic.partitions}
            if is_answered:
                codes = {at: ErrorCode(int(row.acknowledge_error_code)) for at, row in rows.items()}
            elif answer.error_code in REFUSED:
                codes = dict.fromkeys((partition for partition, *_ in acks), answer.error_code)
        finally:
            self._write_acks(session, acks, codes, invoked_ns)
            if not is_answered:
                for partition in sorted(epochs):
                    times = invoked_ns, client.now_ns
                    self._write(session, partition, (0, 0), 0, times, outcome=Outcome.INFO)
        if not is_answered:
            if answer.error_code in (ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch):
                client.did("share-session-lost")
            raise OSError(answer.error_code.name)
        session.partitions = entered
        session.advance()
        lock_ms = round(answer.acquisition_lock_timeout.total_seconds() * 1000)
        for partition in sorted(entered):
            has_stayed = self._leading_epoch(address, partition) == epochs[partition]
            epoch = epochs[partition] if has_stayed else UNKNOWN
            self._take(session, partition, rows.get(partition), (invoked_ns, lock_ms, epoch))
        if any(row.error_code is not ErrorCode.none for row in rows.values()):
            await client.refresh_patiently()

    def _take(self, session: _Session, partition: int, row: Any, asked: tuple[int, int, int]) -> None:
        """Record what a fetch has acquired in a partition. A row with an error, or none, has nothing."""
        client, (invoked_ns, lock_ms, epoch) = self._client, asked
        times = (invoked_ns, client.now_ns)
        # The answer shows that the session exists.
        self._write(session, partition, (0, 0), 0, times, lock_ms=lock_ms, leader_epoch=epoch)
        if row is None or row.error_code is not ErrorCode.none:
            return
        try:
            records = _records(bytes(row.records or b""))
        except CorruptBatch as corrupt:
            self._alarm("corrupt-read", f"{client.name} was sent {corrupt} in partition {partition}")
            return
        for acquired in row.acquired_records:
            first, last, deliveries = map(int, (acquired.first_offset, acquired.last_offset, acquired.delivery_count))
            if deliveries > 1:
                client.did("share-redelivered")
            known = [offset for offset in range(first, last + 1) if offset in records]
            due_s = client.loop.time() + self._rng.choice(HOLDS_S)
            session.held.append(_Held(partition, first, last, frozenset(known), due_s))
            for begin, end in _runs(known):
                self._write(session, partition, (begin, end), deliveries, times, lock_ms=lock_ms, leader_epoch=epoch)
                self._history.assign(self._number, partition, times[1])
                for offset in range(begin, end):
                    value, content = records[offset]
                    self._history.poll(self._number, partition, offset, value, times[1], content=content)

    def _write(
        self,
        session: _Session,
        partition: int,
        offsets: tuple[int, int],
        deliveries: int,
        times_ns: tuple[int, int],
        *,
        lock_ms: int = UNKNOWN,
        leader_epoch: int = UNKNOWN,
        outcome: Outcome = Outcome.OK,
    ) -> None:
        self._history.acquired(
            (self._plan.group_number, self._number, session.number),
            partition,
            offsets,
            deliveries,
            times_ns,
            lock_ms=lock_ms,
            leader_epoch=leader_epoch,
            outcome=outcome,
        )

    def _write_acks(self, session: _Session, acks: Acks, codes: dict[int, ErrorCode], invoked_ns: int) -> None:
        """Record the outcome of acknowledgements. A partition without a code has got no answer."""
        place = (self._plan.group_number, self._number, session.number)
        for partition, first, last, kind in acks:
            code = codes.get(partition)
            outcome = Outcome.OK if code is ErrorCode.none else Outcome.FAIL if code in REFUSED else Outcome.INFO
            times = (invoked_ns, self._client.now_ns)
            self._history.acknowledged(place, partition, (first, last + 1), kind, times, outcome)

    def _topics(self, api: ApiKey, prefix: str, version: int, acks: Acks, partitions: Iterable[int]) -> tuple[Any, ...]:
        """Return the acknowledgements of a request by partition, and further partitions without any."""
        batches: dict[int, list[Any]] = {partition: [] for partition in partitions}
        for partition, first, last, kind in acks:
            types = (int(kind),) * (last - first + 1 if self._rng.random() < 0.3 else 1)
            batches.setdefault(partition, []).append(
                part(
                    api,
                    "AcknowledgementBatch",
                    version,
                    first_offset=first,
                    last_offset=last,
                    acknowledge_types=types,
                )
            )
        rows = tuple(
            part(
                api,
                f"{prefix}Partition",
                version,
                partition_index=partition,
                acknowledgement_batches=tuple(sorted(of_partition, key=lambda batch: batch.first_offset)),
            )
            for partition, of_partition in batches.items()
        )
        topic_id = self._client.topic_id
        return (part(api, f"{prefix}Topic", version, topic_id=topic_id, partitions=rows),) if rows else ()

    def _forgotten(self, partitions: tuple[int, ...]) -> tuple[Any, ...]:
        if not partitions:
            return ()
        topic_id = self._client.topic_id
        return (part(ApiKey.SHARE_FETCH, "ForgottenTopic", FETCH_VERSION, topic_id=topic_id, partitions=partitions),)

    async def _end(self) -> None:
        """End a life in one of the ways of real programs."""
        client, fate = self._client, self._rng.random()
        if fate < 0.3:
            client.did("share-member-leaves")
            with contextlib.suppress(OSError):
                await self._leave()
        elif fate < 0.6:
            # Its connections end, and with them its locks.
            client.did("share-member-dies")
            client.hang_up()
        else:
            # Its connections stay: its locks have to end by their time.
            client.did("share-member-falls-silent")
            await asyncio.sleep(SILENCE_S)
            client.hang_up()
        self._sessions.clear()
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0.0, 2.0))))

    async def _leave(self) -> None:
        """Close the sessions, and leave the group. Raises OSError."""
        for address, session in self._sessions.items():
            session.epoch = CLOSING if session.epoch != OPENING else session.epoch
            if session.epoch == CLOSING:
                await self._acknowledge(address, session, self._done(session, may_renew=False))
        request = message(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            HEARTBEAT_VERSION,
            group_id=self.group,
            member_id=self._id,
            member_epoch=LEAVING,
            subscribed_topic_names=None,
        )
        await self._coordinator.ask(request)


def _records(data: bytes) -> Records:
    """Return the records of a fetch. Raises CorruptBatch."""
    return {offset: (value, content) for batch in split(data) for offset, value, content in decoded(batch)[1]}


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive offsets, each up to before its end."""
    for _, run in groupby(enumerate(offsets), lambda each: each[1] - each[0]):
        (_, first), *more = run
        yield first, (more[-1][1] if more else first) + 1
