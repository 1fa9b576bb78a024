"""The handlers of the transaction APIs over a coordinator in memory, with requests and responses as bytes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from admin_fixture import AdminFixture
from kio.schema.errors import ErrorCode
from offsets_in_memory import FIRST, OffsetsInMemory

from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.groups.settings import group_settings
from cordwood.cluster.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from cordwood.cluster.kafka.producer_ids import ProducerIds
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from cordwood.cluster.transactions.coordinator import TransactionCoordinator
from cordwood.cluster.transactions.markers import Codes, MarkerRow
from cordwood.cluster.transactions.settings import transaction_settings
from cordwood.cluster.transactions.transaction import AddedPartition

ID = "pay"
PARTITIONS = 4
NOW_MS = 1_700_000_000_000


class TransactionHandlers(AdminFixture):
    """A broker with a topic `flights` of three partitions, and its coordinators. `markers` are those written."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for number, (name, count) in enumerate(
            ((CONSUMER_OFFSETS, PARTITIONS), (TRANSACTION_STATE, PARTITIONS), ("flights", 3))
        ):
            self.propose(CreateTopic(UUID(int=number + 1), name, ((BrokerId(1),),) * count))
        self.markers: list[tuple[str, int, bool]] = []
        self.acknowledges = True
        self.now_ms = NOW_MS
        self.topic = OffsetsInMemory(PARTITIONS, TRANSACTION_STATE)
        self.services.producer_ids = ProducerIds(self.voter, BrokerId(1))
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.topic.create()
        groups = OffsetsInMemory(PARTITIONS)
        groups.create()
        self.services.groups = GroupCoordinator(
            context=GroupContext(group_settings(self.settings)),
            topic=groups.seen_by(FIRST),
            topic_exists=lambda name: name in self.image.topics_by_name,
            wall_clock=lambda: self.now_ms,
            rng=self.services.rng,
        )
        self.services.transactions = TransactionCoordinator(
            settings=replace(transaction_settings(self.settings), completion_wait_s=0.01),
            topic=self.topic.seen_by(FIRST),
            topic_id=lambda name: None if (topic := self.image.topics_by_name.get(name)) is None else topic.id,
            leader_of=lambda _: 1,
            send_markers=self._write,
            next_producer_id=self.services.producer_ids.next,
            wall_clock=lambda: self.now_ms,
        )

    async def _write(self, _broker: int, rows: Any) -> Codes:
        return [{partition: self._written(row, partition) for partition in row.partitions} for row in rows]

    def _written(self, row: MarkerRow, partition: AddedPartition) -> ErrorCode:
        if not self.acknowledges:
            return ErrorCode.not_leader_or_follower
        self.markers.append((partition.topic, partition.partition, row.decision.marker.is_commit))
        return ErrorCode.none

    def init(self, version: int = 5, **fields: Any) -> Any:
        request = {"transactional_id": ID, "transaction_timeout": timedelta(seconds=60)}
        return self.ask(init_producer_id, version, **{**request, **fields})

    def producer(self) -> dict[str, Any]:
        """Begin a producer, and return the fields of its requests."""
        answered = self.init()
        assert answered.error_code is ErrorCode.none
        return {
            "transactional_id": ID,
            "producer_id": answered.producer_id,
            "producer_epoch": answered.producer_epoch,
        }

    def add(
        self, version: int, producer: dict[str, Any], *partitions: tuple[str, int], **fields: Any
    ) -> list[ErrorCode]:
        """Add partitions, or verify them with `verify_only`. Return their codes."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        named = tuple({"name": topic, "partitions": tuple(indexes)} for topic, indexes in topics.items())
        if version >= 4:
            transaction = {**producer, **fields, "topics": named}
            answered = self.ask(add_partitions_to_txn, version, transactions=(transaction,))
            assert answered.error_code is ErrorCode.none
            (result,) = answered.results_by_transaction
            assert result.transactional_id == producer["transactional_id"]
            results = result.topic_results
        else:
            old = {f"v3_and_below_{name}": value for name, value in {**producer, "topics": named}.items()}
            results = self.ask(add_partitions_to_txn, version, **old).results_by_topic_v3_and_below
        return [row.partition_error_code for topic in results for row in topic.results_by_partition]

    def add_offsets(self, version: int, producer: dict[str, Any], group_id: str = "group") -> ErrorCode:
        code: ErrorCode = self.ask(add_offsets_to_txn, version, **producer, group_id=group_id).error_code
        return code

    def end(self, version: int, producer: dict[str, Any], *, commit: bool = True) -> Any:
        return self.ask(end_txn, version, **producer, committed=commit)

    def close(self) -> None:
        self.runner.run(self.services.transactions.close())
        self.runner.run(self.services.groups.close())
        super().close()
