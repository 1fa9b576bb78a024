"""Transaction coordinators over one `__transaction_state` in memory, and brokers that write markers, or refuse to."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import wraps
from typing import Any
from uuid import UUID

from coordinators_in_memory import CoordinatorsInMemory
from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST, OffsetsInMemory
from virtual_time import run

from cordwood.cluster.coordination.shard import Readiness
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.image import Image, TopicImage
from cordwood.cluster.proposals.topics import TRANSACTION_STATE
from cordwood.cluster.transactions.coordinator import TransactionCoordinator
from cordwood.cluster.transactions.markers import Codes, Marker, MarkerRow, Unacknowledged
from cordwood.cluster.transactions.settings import TransactionSettings
from cordwood.cluster.transactions.states import TransactionState
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

ID = "pay"
TIMEOUT_MS = 60_000
SECOND = FIRST + 1
"""The broker that the tests elect."""
ONE, TWO = TopicPartition("flights", 0), TopicPartition("flights", 1)


class TransactionsFixture(CoordinatorsInMemory[TransactionCoordinator]):
    """Coordinators by broker, and one client.

    `topics` are the ids of the topics by name, and `leaders` the leaders of partitions other than FIRST. The brokers'
    answers to markers have the codes of `codes`, NONE by default, and wait until `gate` is set.
    """

    key = ID

    def __init__(self, brokers: int = 1, **settings: int) -> None:
        self.settings = TransactionSettings(**settings)
        self.topics = {"flights": UUID(int=1), "planes": UUID(int=2)}
        self.leaders: dict[TopicPartition, int] = {}
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        self.unreachable: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[tuple[int, list[tuple[Marker, set[TopicPartition]]]]] = []
        self.written: list[tuple[TopicPartition, Marker]] = []
        self.producer = ProducerIdAndEpoch(-1, -1)
        self.producer_ids = 0
        self.clock_jump_ms = 0
        super().__init__(OffsetsInMemory(name=TRANSACTION_STATE), brokers)

    def wall_clock(self) -> int:
        return super().wall_clock() + self.clock_jump_ms

    def made(self, broker: int) -> TransactionCoordinator:
        return TransactionCoordinator(
            settings=self.settings,
            topic=self.topic.seen_by(broker),
            topic_id=self.topics.get,
            leader_of=self._leader_of,
            send_markers=self._send_markers,
            next_producer_id=self._next_producer_id,
            wall_clock=self.wall_clock,
        )

    async def loaded(self) -> None:
        shards = self.coordinator._store._shards
        await self.until(lambda: all(shard.readiness is not Readiness.LOADING for shard in shards.values()))

    def delete_topic(self, name: str, *, created_again: bool = False) -> None:
        topic = TopicImage(self.topics.pop(name), name, ())
        if created_again:
            self.topics[name] = UUID(int=topic.id.int + 100)
        before = Image(1, topics_by_name={name: topic}, topics_by_id={topic.id: topic})
        for coordinator in self.coordinators.values():
            coordinator.on_metadata_change(before, Image(2))

    async def init(
        self, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS, transactional_id: str = ID
    ) -> ProducerIdAndEpoch:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        self.producer = await self.coordinator.init_producer_id(transactional_id, timeout_ms, known)
        return self.producer

    async def add(self, *partitions: TopicPartition, **how: Any) -> None:
        producer = how.pop("producer", self.producer)
        await self.coordinator.add_partitions(how.pop("transactional_id", ID), producer, partitions or (ONE,), **how)

    async def end(self, verb: str, *, v2: bool = False, **how: Any) -> ProducerIdAndEpoch:
        producer = how.pop("producer", self.producer)
        self.producer = await self.coordinator.end(
            how.pop("transactional_id", ID), producer, commit=verb == "commit", is_v2=v2, **how
        )
        return self.producer

    def state(self, transactional_id: str = ID) -> TransactionState:
        return self.coordinator.describe(transactional_id).state

    async def until_state(self, state: TransactionState) -> None:
        await self.until(lambda: self.state() is state)

    async def code_of(self, work: Awaitable[object]) -> ErrorCode:
        """Return the code of the refusal, or `none`."""
        try:
            await work
        except Refused as refusal:
            return refusal.code
        return ErrorCode.none

    def markers(self) -> list[tuple[TopicPartition, str, int]]:
        """Return what was written: partition, verb and producer epoch."""
        return [
            (partition, "commit" if marker.is_commit else "abort", marker.producer.epoch)
            for partition, marker in self.written
        ]

    def _leader_of(self, partition: AddedPartition) -> int | None:
        if self.topics.get(partition.topic) != partition.topic_id:
            return None
        return self.leaders.get(TopicPartition(partition.topic, partition.partition), FIRST)

    async def _send_markers(self, broker: int, rows: Sequence[MarkerRow]) -> Codes:
        self.requests.append((broker, [(row.decision.marker, _names(row.partitions)) for row in rows]))
        await self.gate.wait()
        if broker in self.unreachable:
            raise Unacknowledged(f"broker {broker} does not answer")
        return [{partition: self._write(row, partition) for partition in row.partitions} for row in rows]

    def _write(self, row: MarkerRow, partition: AddedPartition) -> ErrorCode:
        name = TopicPartition(partition.topic, partition.partition)
        codes = self.codes.get(name)
        code = codes.pop(0) if codes else ErrorCode.none
        if code is ErrorCode.none:
            self.written.append((name, row.decision.marker))
        return code

    async def _next_producer_id(self) -> int:
        await asyncio.sleep(0)
        self.producer_ids += 1
        return self.producer_ids


def reported(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    @wraps(story)
    def test() -> None:
        run(story())

    del test.__wrapped__  # type: ignore[attr-defined]
    return test


def _names(partitions: Collection[AddedPartition]) -> set[TopicPartition]:
    return {TopicPartition(topic, partition) for _, topic, partition in partitions}
