"""Random leader changes, lost requests and lost markers: no transaction is torn, and none stays open."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from transactions_fixture import ID, TransactionsFixture
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.markers import Codes, Marker, MarkerRow, Unacknowledged
from cordwood.cluster.transactions.states import OPEN
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

BROKERS = range(1, 4)
PARTITIONS = [TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("planes", 0)]
RETRIED = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
    }
)
FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_txn_state})
TIMEOUT_MS = 4_000
HEALED_S = 300.0


@dataclass
class PartitionModel:
    """What a partition's leader does with the data and the markers of the one producer."""

    epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epoch: int = -1
    open: list[int] = field(default_factory=list)
    """Transactions, by number, whose data is undecided."""
    outcomes: dict[int, set[bool]] = field(default_factory=dict)
    """By transaction: whether its data was committed."""

    def append(self, transaction: int, producer: ProducerIdAndEpoch) -> bool:
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            return False
        self.epochs[producer.producer_id] = producer.epoch
        self.open.append(transaction)
        return True

    def mark(self, marker: Marker) -> ErrorCode:
        producer_id, epoch = marker.producer
        known = self.epochs.get(producer_id, -1)
        if marker.coordinator_epoch < self.coordinator_epoch:
            return ErrorCode.transaction_coordinator_fenced
        is_retry = epoch == known and not self.open
        if (epoch <= known if marker.is_v2 else epoch < known) and not is_retry:
            return ErrorCode.invalid_producer_epoch
        self.coordinator_epoch, self.epochs[producer_id] = marker.coordinator_epoch, epoch
        for transaction in self.open:
            self.outcomes.setdefault(transaction, set()).add(marker.is_commit)
        self.open.clear()
        return ErrorCode.none


class World(TransactionsFixture):
    """Coordinators, partitions, and one client that begins one transaction after the other.

    `trouble` has what happens to the next marker requests. A request that the client gives up arrives later, unless the
    coordinator has moved: its connection is closed then.
    """

    def __init__(self, is_v2: bool) -> None:
        super().__init__(brokers=len(BROKERS))
        self.is_v2 = is_v2
        self.partitions = {name: PartitionModel() for name in PARTITIONS}
        self.trouble: list[str] = []
        self.gives_up = 0
        self.connection = 1
        self.number = 0
        self.reported: dict[int, bool] = {}
        self.late: set[asyncio.Task[None]] = set()
        self.is_stopping = False

    async def _send_markers(self, _broker: int, rows: Sequence[MarkerRow]) -> Codes:
        what = self.trouble.pop() if self.trouble else "fine"
        await asyncio.sleep(0.01)
        if what == "lost":
            raise Unacknowledged("the request is lost")
        if what == "refused":
            return [dict.fromkeys(row.partitions, ErrorCode.not_leader_or_follower) for row in rows]
        codes = [{one: self._mark(row, one) for one in row.partitions} for row in rows]
        if what == "unanswered":
            raise Unacknowledged("the answer is lost")
        return codes

    def _mark(self, row: MarkerRow, partition: AddedPartition) -> ErrorCode:
        return self.partitions[TopicPartition(partition.topic, partition.partition)].mark(row.decision.marker)

    def elect(self, broker: int, **changes: int) -> None:
        if broker != self.leader:
            for task in self.late:
                task.cancel()
        super().elect(broker, **changes)

    async def live(self, plan: Callable[[int], tuple[Sequence[TopicPartition], str]]) -> None:
        while not self.is_stopping:
            self.number += 1
            try:
                await self.transact(*plan(self.number))
            except Refused as refusal:
                if refusal.code not in FENCED:
                    raise
                await self.retried(self.begin_producer)

    async def begin_producer(self) -> None:
        await self.init(timeout_ms=TIMEOUT_MS)

    async def transact(self, partitions: Sequence[TopicPartition], verb: str) -> None:
        if self.producer.producer_id < 0:
            await self.retried(self.begin_producer)
        number, producer = self.number, self.producer
        if not self.is_v2:
            await self.asked(lambda connection: self.add(*partitions, producer=producer, connection=connection))
        for partition in partitions:
            await self.verified(partition, producer)
            await asyncio.sleep(0.01)
            if not self.partitions[partition].append(number, producer):
                raise Refused(ErrorCode.producer_fenced)
        answered = await self.asked(
            lambda connection: self.coordinator.end(
                ID, producer, commit=verb == "commit", is_v2=self.is_v2, connection=connection
            )
        )
        self.reported[number] = verb == "commit"
        self.producer = answered

    async def verified(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        async def verify() -> None:
            if self.is_v2:
                await self.coordinator.add_partitions(ID, producer, [partition], is_v2=True)
                return
            (code,) = self.coordinator.verify_partitions(ID, producer, [partition]).values()
            if code is ErrorCode.transaction_abortable:
                raise Refused(ErrorCode.producer_fenced)

        await self.retried(verify)

    async def asked(self, ask: Callable[[int], Awaitable[Any]]) -> Any:
        """Send a request until it is answered. One that is given up arrives late, on an older connection."""
        if self.gives_up:
            self.gives_up -= 1
            task = asyncio.ensure_future(self.arrives_late(ask, self.connection))
            self.late.add(task)
            task.add_done_callback(self.late.discard)
            self.connection += 1
        return await self.retried(lambda: ask(self.connection))

    async def arrives_late(self, ask: Callable[[int], Awaitable[Any]], connection: int) -> None:
        await asyncio.sleep(0.7)
        before = self.producer
        try:
            await ask(connection)
        except Refused:
            return
        finally:
            # The fixture notes the producer of each answer, and this one has no reader.
            self.producer = before

    async def retried(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await ask()
            except Refused as refusal:
                if refusal.code not in RETRIED:
                    raise
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """Check that no transaction is torn, and that each has the outcome that the client received."""
        for coordinator in self.coordinators.values():
            for shard in coordinator._store.shards:
                states = Counter(transaction.state for transaction in shard.transactions.values())
                assert +Counter(shard.counts) == states
                assert shard.open.keys() == {one for one, now in shard.transactions.items() if now.state in OPEN}
        for number in range(1, self.number + 1):
            outcomes = {one for model in self.partitions.values() for one in model.outcomes.get(number, ())}
            assert len(outcomes) < 2, f"transaction rule 4: {number} is committed and aborted"
            if number in self.reported and outcomes:
                assert outcomes == {self.reported[number]}, f"transaction rule 1: {number} is not what was answered"


class Faults:
    """Random faults, one after the other, while the client works."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(is_v2=bool(seed % 2))
        self.client = asyncio.ensure_future(self.world.live(self.plan))

    def plan(self, _number: int) -> tuple[Sequence[TopicPartition], str]:
        partitions = self.rng.sample(PARTITIONS, self.rng.randint(1, len(PARTITIONS)))
        return partitions, self.rng.choice(("commit", "commit", "abort"))

    async def strike(self) -> None:
        """Change something, and let some time pass."""
        world, rng = self.world, self.rng
        match rng.choice(("wait", "time out", "elect", "elect", "hold", "release", "markers", "give up", "refuse")):
            case "time out":
                world.topic.hold()
                await asyncio.sleep(0.1)
                world.topic.release()
                await asyncio.sleep(TIMEOUT_MS / 1000 + 3)
            case "elect":
                world.elect(rng.choice(BROKERS), keeping=rng.randint(0, 2))
            case "hold":
                world.topic.hold()
            case "release":
                world.topic.release()
            case "markers":
                world.trouble += rng.choices(("lost", "refused", "unanswered"), k=3)
            case "give up":
                world.gives_up += 2
            case "refuse":
                world.topic.refusal = rng.choice((None, ErrorCode.coordinator_not_available))
        await asyncio.sleep(rng.choice((0.01, 0.03, 0.1, 1.0)))

    async def heal(self) -> None:
        """End all faults and the client, and wait until its last transaction is decided."""
        world = self.world
        world.topic.refusal = None
        world.trouble.clear()
        world.topic.release()
        world.tell_all()
        world.is_stopping = True
        async with asyncio.timeout(HEALED_S):
            await self.client
        await asyncio.sleep(TIMEOUT_MS / 1000 + 10)


@pytest.mark.parametrize("seed", range(10))
def test_no_transaction_is_torn_and_none_stays_open(seed: int) -> None:
    async def whole() -> None:
        faults = Faults(seed)
        world = faults.world
        await asyncio.sleep(0.1)
        for _ in range(40):
            await faults.strike()
            world.check()
            assert not faults.client.done() or faults.client.result()
        await faults.heal()
        world.check()
        assert len(world.reported) > 5
        for model in world.partitions.values():
            assert not model.open, "transaction rule 4: a transaction is open"
        decided = {number for model in world.partitions.values() for number in model.outcomes}
        assert decided >= world.reported.keys()
        for coordinator in world.coordinators.values():
            await coordinator.close()

    run(whole())
