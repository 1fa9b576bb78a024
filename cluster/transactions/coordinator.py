"""Transaction coordinator: requests to the transactional ids of this broker, and their replies.

A thin shell. `transaction.py` has the rules. `shard.py` holds one partition of `__transaction_state` in memory, and
`markers.py` writes the markers of decided transactions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.patterns import compile_pattern
from cordwood.cluster.coordination.shard_store import ShardStore, chunks
from cordwood.cluster.coordination.topic import InternalTopic, PartitionLeadership
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.image import Image, changed_topics
from cordwood.cluster.transactions.connections import NewestConnections
from cordwood.cluster.transactions.markers import Codes, Decided, LeaderOf, Marker, MarkerRow, MarkerSender
from cordwood.cluster.transactions.settings import TransactionSettings
from cordwood.cluster.transactions.shard import PartitionNames, TransactionShard, record
from cordwood.cluster.transactions.states import DECIDED, OPEN, TransactionState
from cordwood.cluster.transactions.transaction import AddedPartition, ProducerIdNeeded, Transaction
from cordwood.replication.tasks import Tasks
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

NAME_BYTES_MAX = 32_000
"""Largest length of a transactional id that fits the records."""
RECORDS_AT_ONCE = 20
"""Transactional ids in one batch, where there are many to write."""
IDS_AT_ONCE = 2000
"""Transactional ids that are checked for timeouts in one event-loop iteration: some 2 ms."""
COMPLETIONS_S = 0.5
"""How long the record of a completion may wait for that of the next transaction."""
BROKERS_WAIT_S = 0.02
"""The longest wait of a broker's request for the markers of the last transaction: it is about several transactions."""

UNKNOWN_TOPIC = UUID(int=0)
"""The topic id of a partition whose record has none, and whose topic is deleted."""

_events = structlog.get_logger("transactions")

_Transition = Callable[[Transaction, bool, int | None], Transaction]
"""Returns the next state, from the current one, whether a transition is being written, and a new producer id."""


class TransactionDescription(NamedTuple):
    """One transactional id, as an operator sees it. Times are wall-clock milliseconds; -1 without a transaction."""

    transactional_id: str
    state: TransactionState
    producer: ProducerIdAndEpoch
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class TransactionListing(NamedTuple):
    """A row of the list of transactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(slots=True)
class TransactionMeasures:
    """Counts since the start of the broker: completed transactions, and aborted ones whose producer is fenced."""

    committed: int = 0
    aborted: int = 0
    replaced: int = 0
    """Fenced by another producer with the same transactional id."""
    timed_out: int = 0
    """Fenced because the transaction exceeded its timeout."""


class TransactionCoordinator:
    """All transactional ids of this broker.

    Methods raise Refused for an id that is not, not yet or no longer served here. `connection` is the number of the
    client's connection, which rises with each accepted one; 0 if it is unknown. `is_v2` is true of clients with the
    second version of the protocol (KIP-890).
    """

    def __init__(
        self,
        *,
        settings: TransactionSettings,
        topic: InternalTopic,
        topic_id: Callable[[str], UUID | None],
        leader_of: LeaderOf,
        send_markers: Callable[[int, Sequence[MarkerRow]], Awaitable[Codes]],
        next_producer_id: Callable[[], Awaitable[int]],
        wall_clock: Callable[[], int],
    ) -> None:
        """`topic_id` returns the id of the topic that has a name now. See `MarkerSender` for the markers."""
        self._settings, self._topic_id, self._wall_clock = settings, topic_id, wall_clock
        self._next_producer_id = next_producer_id
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._names = PartitionNames()
        self._connections = NewestConnections()
        self._store = ShardStore(topic, self._open_shard, self._tasks, wall_clock, self._loaded, self._lost)
        self._markers = MarkerSender(leader_of, send_markers, self._tasks)
        self._completions: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None
        """The checks for timeouts and expiry. A broker that coordinates nothing has none."""
        self._sweeping: set[TransactionShard] = set()
        self.measures = TransactionMeasures()

    @property
    def max_timeout_ms(self) -> int:
        """The longest timeout that a producer may request."""
        return self._settings.max_timeout_ms

    def start(self) -> None:
        """Load the transactional ids in the background."""
        self._store.follow()

    async def close(self) -> None:
        """Drop all transactional ids. They stay in the log."""
        self._store.close()
        self._markers.close()
        if self._completions is not None:
            self._completions.cancel()
        await self._tasks.close()

    async def place(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` of an id; its leader is the id's coordinator."""
        return await self._store.place(_checked(transactional_id))

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
    ) -> ProducerIdAndEpoch:
        """Return the id's producer id with a new epoch, which fences all earlier producers.

        An ongoing transaction is aborted instead, and refused with CONCURRENT_TRANSACTIONS.
        """
        _checked(transactional_id)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise Refused(ErrorCode.invalid_transaction_timeout)
        await self._store.find_or_create(transactional_id)
        spare_id: int | None = None
        while True:
            shard = self._shard(transactional_id)
            if shard.is_pending(transactional_id):
                raise Refused(ErrorCode.concurrent_transactions)
            now_ms = self._wall_clock()
            current = shard.transactions.get(transactional_id)
            try:
                if current is None:
                    current = _created(spare_id, timeout_ms, now_ms)
                new = current.initialize(timeout_ms, expected, now_ms, spare_id)
                break
            except ProducerIdNeeded:
                spare_id = await self._next_producer_id()
        await self._write(shard, {transactional_id: new})
        if new.state in DECIDED:
            self.measures.replaced += 1
            raise Refused(ErrorCode.concurrent_transactions)
        return new.producer

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        connection: int = 0,
        is_v2: bool = False,
    ) -> None:
        """Add partitions to the transaction, which begins with the first. Return once they are durable."""

        def add(current: Transaction, is_pending: bool, _spare_id: int | None) -> Transaction:
            new = current.add(producer, added, self._wall_clock(), is_v2=is_v2, is_pending=is_pending)
            if not is_v2:
                self._connections.note(producer, connection)
            return new

        added = [self._named(partition) for partition in partitions]
        await self._transition(transactional_id, add, BROKERS_WAIT_S if is_v2 else None)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition `none` if it is in the ongoing transaction, else TRANSACTION_ABORTABLE.

        A partition of a topic that was created again since it was added is another one: it would get no marker.
        """
        current = self._shard(transactional_id).transactions.get(transactional_id)
        if current is None:
            raise Refused(ErrorCode.invalid_producer_id_mapping)
        codes = current.verify(producer, [self._restored(None, *partition) for partition in partitions])
        return dict(zip(partitions, codes, strict=True))

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        is_v2: bool,
        connection: int = 0,
    ) -> ProducerIdAndEpoch:
        """Decide the transaction. Return the producer's id and epoch for the next one, once the decision is durable."""

        def end(current: Transaction, is_pending: bool, spare_id: int | None) -> Transaction:
            new = current.end(
                producer, self._wall_clock(), commit=commit, is_v2=is_v2, is_pending=is_pending, spare_id=spare_id
            )
            if not is_v2:
                self._connections.note(producer, connection)
            return new

        return (await self._transition(transactional_id, end)).next_producer

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return one transactional id. Raises Refused(TRANSACTIONAL_ID_NOT_FOUND)."""
        current = self._shard(transactional_id, ErrorCode.transactional_id_not_found).transactions.get(transactional_id)
        if current is None:
            raise Refused(ErrorCode.transactional_id_not_found)
        partitions = tuple(TopicPartition(topic, partition) for _, topic, partition in current.partitions)
        return TransactionDescription(
            transactional_id, current.state, current.producer, current.timeout_ms, current.start_ms, partitions
        )

    def list(
        self,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str = "",
    ) -> Iterator[TransactionListing | None]:
        """Return the transactional ids that match all filters, and None for each other one, so that a caller can pause.

        `open_longer_than_ms`, unless it is negative, selects transactions that are open for longer. Raises Refused
        if some ids are loading, or cannot be loaded.
        """
        shards = self._store.all_shards()
        matches = compile_pattern(pattern) if pattern else None
        before_ms = self._wall_clock() - open_longer_than_ms

        def is_wanted(transactional_id: str, current: Transaction) -> bool:
            return (
                (not states or current.state in states)
                and (not producer_ids or current.producer_id in producer_ids)
                and (open_longer_than_ms < 0 or (current.state in OPEN and current.start_ms < before_ms))
                and (matches is None or matches(transactional_id))
            )

        return (
            TransactionListing(transactional_id, current.producer_id, current.state)
            if is_wanted(transactional_id, current)
            else None
            for shard in shards
            for transactional_id, current in list(shard.transactions.items())
        )

    def counts(self) -> Mapping[TransactionState, int]:
        """Return the number of transactional ids by state. Those that are loading do not count."""
        shards = self._store.shards
        return {state: sum(shard.counts[state] for shard in shards) for state in TransactionState}

    def open(self) -> Iterator[Transaction]:
        """Return the open transactions. A caller may pause: those that end meanwhile are left out."""
        ids = ((shard, transactional_id) for shard in self._store.shards for transactional_id in list(shard.open))
        return (
            shard.transactions[transactional_id] for shard, transactional_id in ids if transactional_id in shard.open
        )

    def decisions(self) -> Collection[Decided]:
        """Return the decided transactions that lack a marker."""
        return self._markers.queue.decisions()

    def on_metadata_change(self, old: Image, new: Image) -> None:
        """Follow a metadata change; the quorum calls this after the replicas have their new roles."""
        if old.topics_by_id is not new.topics_by_id:
            for before, after in changed_topics(old, new):
                if after is None and before is not None:
                    self._names.forget(before.id)
            self._follow()

    def roles_taken(self) -> None:
        """Follow the roles of replicas that were taken after the metadata change."""
        self._follow()

    def _follow(self) -> None:
        self._store.follow()
        self._markers.leaders_changed()

    def _shard(
        self, transactional_id: str, code: ErrorCode = ErrorCode.invalid_producer_id_mapping
    ) -> TransactionShard:
        """Return the shard of a transactional id. Raises Refused with `code` if there is no topic, and so no id."""
        shard = self._store.find(_checked(transactional_id))
        if shard is None:
            raise Refused(code)
        return shard

    def _open_shard(self, leadership: PartitionLeadership) -> TransactionShard:
        return TransactionShard(leadership, self._restored)

    def _restored(self, topic_id: UUID | None, topic: str, partition: int) -> AddedPartition:
        known = topic_id or self._topic_id(topic)
        if known is None:
            # There may be several such topics.
            return AddedPartition(UNKNOWN_TOPIC, topic, partition)
        return self._names.intern(known, topic, partition)

    def _named(self, partition: TopicPartition) -> AddedPartition:
        topic_id = self._topic_id(partition.topic)
        if topic_id is None:
            raise Refused(ErrorCode.unknown_topic_or_partition)
        return self._names.intern(topic_id, partition.topic, partition.partition)

    async def _transition(
        self, transactional_id: str, transition: _Transition, wait_s: float | None = None
    ) -> Transaction:
        """Make a transition durable. Return the new state.

        While another one is being written, or markers are, wait for them: sooner than a client would ask again.
        """
        spare_id: int | None = None
        patience_ends: float | None = None
        while True:
            shard = self._shard(transactional_id)
            current = shard.transactions.get(transactional_id)
            if current is None:
                raise Refused(ErrorCode.invalid_producer_id_mapping)
            try:
                new = transition(current, shard.is_pending(transactional_id), spare_id)
            except ProducerIdNeeded:
                spare_id = await self._next_producer_id()
                continue
            except Refused as refusal:
                if refusal.code is not ErrorCode.concurrent_transactions:
                    raise
                patience_ends = patience_ends or self._loop.time() + (wait_s or self._settings.completion_wait_s)
                await asyncio.wait((shard.settled(transactional_id),), timeout=patience_ends - self._loop.time())
                if self._loop.time() >= patience_ends:
                    raise
                continue
            if new is not current:
                await self._write(shard, {transactional_id: new})
            return new

    async def _write(self, shard: TransactionShard, changes: Mapping[str, Transaction]) -> None:
        """Apply transitions, all or none, once they are committed. Then write the markers of decisions."""
        if not changes:
            return
        for transactional_id, transaction in changes.items():
            shard.begin(transactional_id, transaction)
        try:
            await self._store.append(shard, [record(*change) for change in changes.items()])
        except BaseException:
            for transactional_id in changes:
                shard.abandon(transactional_id)
            raise
        for transactional_id, transaction in changes.items():
            shard.settle(transactional_id)
            if transaction.state in DECIDED and self._store.holds(shard):
                self._write_markers(shard, transactional_id, transaction)

    def _write_markers(self, shard: TransactionShard, transactional_id: str, transaction: Transaction) -> None:
        marker = Marker(transaction.producer, transaction.is_commit, transaction.is_v2, shard.leadership.leader_epoch)
        decision = Decided(shard, marker, transaction.partitions, lambda: self._complete(shard, transactional_id))
        self._markers.write(decision)

    def _complete(self, shard: TransactionShard, transactional_id: str) -> None:
        """Complete a transaction, all of whose markers are committed.

        The record can wait: the producer's next transaction writes it along, and where it is lost, the next coordinator
        writes the same markers again. A separate write would delay that of the next transaction.
        """
        decided = shard.transactions[transactional_id]
        if decided.is_commit:
            self.measures.committed += 1
        else:
            self.measures.aborted += 1
        shard.complete(transactional_id, decided.complete(self._wall_clock()))
        if self._completions is None:
            self._completions = self._loop.call_later(COMPLETIONS_S, self._begin_completions)

    def _begin_completions(self) -> None:
        self._completions = None
        self._tasks.spawn(self._write_completions(), "completed transactions")

    async def _write_completions(self) -> None:
        """Write the completions of producers that have begun no other transaction."""
        for shard in self._store.shards:
            try:
                while self._store.holds(shard) and (transactional_ids := shard.unwritten(RECORDS_AT_ONCE)):
                    self._store.submit(shard, [record(one, shard.transactions[one]) for one in transactional_ids])
                    shard.written(transactional_ids)
                    # Very many may have timed out together.
                    await asyncio.sleep(0)
            except Refused as refusal:
                _events.warning("transactions.not_written", partition=shard.partition, error=str(refusal))
        if self._completions is None and any(shard.unwritten(1) for shard in self._store.shards):
            self._completions = self._loop.call_later(COMPLETIONS_S, self._begin_completions)

    def _loaded(self, shard: TransactionShard) -> None:
        if self._sweeper is None:
            self._sweeper = self._tasks.repeat(self._sweep, "transaction timeouts")
        for transactional_id in shard.decided:
            self._write_markers(shard, transactional_id, shard.transactions[transactional_id])

    def _lost(self, shard: TransactionShard) -> None:
        shard.let_go()
        self._markers.cancel(shard)

    async def _sweep(self) -> None:
        await asyncio.sleep(self._settings.sweep_interval_ms / 1000)
        for shard in self._store.shards:
            if shard in self._sweeping:
                continue
            due: list[str] = []
            for transactional_ids in chunks(list(shard.transactions), IDS_AT_ONCE):
                due += self._due(shard, transactional_ids)
                await asyncio.sleep(0)
            if due:
                self._sweeping.add(shard)
                self._tasks.spawn(self._sweep_shard(shard, due), "transaction timeouts of a shard")

    async def _sweep_shard(self, shard: TransactionShard, due: Sequence[str]) -> None:
        try:
            for transactional_ids in chunks(due, RECORDS_AT_ONCE):
                # Much may have happened to them since they were found.
                changes = self._due(shard, transactional_ids)
                await self._write(shard, changes)
                for transactional_id in (one for one, changed in changes.items() if changed.state in DECIDED):
                    self.measures.timed_out += 1
                    _events.info("transactions.timed_out", transactional_id=transactional_id)
        except Refused as refusal:
            _events.warning("transactions.not_swept", partition=shard.partition, error=str(refusal))
        finally:
            self._sweeping.discard(shard)

    def _due(self, shard: TransactionShard, transactional_ids: Iterable[str]) -> dict[str, Transaction]:
        """Return the transitions of transactions that exceed their timeout, and of ids that have expired.

        Those with a transition that is being written are left alone.
        """
        now_ms, expiration_ms = self._wall_clock(), self._settings.id_expiration_ms
        due = {}
        for transactional_id in transactional_ids:
            current = shard.transactions.get(transactional_id)
            if current is None or shard.is_pending(transactional_id):
                continue
            if current.start_ms > now_ms:
                current = shard.transactions[transactional_id] = current.counted_from(now_ms)
            if current.is_timed_out(now_ms):
                due[transactional_id] = current.fence(now_ms)
            elif current.is_expired(now_ms, expiration_ms):
                due[transactional_id] = current.expire()
        return due


def _created(producer_id: int | None, timeout_ms: int, now_ms: int) -> Transaction:
    if producer_id is None:
        raise ProducerIdNeeded
    return Transaction.create(producer_id, timeout_ms, now_ms)


def _checked(transactional_id: str) -> str:
    if not transactional_id or len(transactional_id.encode()) > NAME_BYTES_MAX:
        raise Refused(ErrorCode.invalid_request)
    return transactional_id
