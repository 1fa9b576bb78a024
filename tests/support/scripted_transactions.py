"""A transaction coordinator whose answers a test sets, as a partition's leader sees it: here or on another broker."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image, PartitionImage, TopicImage
from cordwood.cluster.proposals.topics import TRANSACTION_STATE
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

ME, OTHER = 1, 2


class Asked(NamedTuple):
    """A question about a transaction's partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    adds: bool


class ScriptedTransactions:
    """The coordinator. `code` refuses everything, `codes` some partitions; a cleared `gate` delays the answers."""

    def __init__(self) -> None:
        self.code = ErrorCode.none
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.is_lost = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[Asked] = []
        self.requests: list[list[str]] = []
        """The transactional ids of each request to another broker."""
        self.leader: int | None = ME

    @property
    def image(self) -> Image:
        """Metadata in which `leader` coordinates all transactions; without the topic if there is no leader."""
        if self.leader is None:
            return Image()
        partition = PartitionImage((BrokerId(self.leader),), (BrokerId(self.leader),), BrokerId(self.leader))
        return Image(topics_by_name={TRANSACTION_STATE: TopicImage(UUID(int=99), TRANSACTION_STATE, (partition,))})

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        return self._answer(Asked(transactional_id, producer, tuple(partitions), adds=False))

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        is_v2: bool = False,
    ) -> None:
        assert is_v2, "a broker speaks for a client of the second protocol"
        await self.gate.wait()
        self._answer(Asked(transactional_id, producer, tuple(partitions), adds=True))

    async def ask(self, broker_id: int, request: Any, answer_s: float) -> Any:
        """Answer a request to another broker as that broker does."""
        assert broker_id == self.leader
        self.requests.append([transaction.transactional_id for transaction in request.transactions])
        try:
            async with asyncio.timeout(answer_s):
                await self.gate.wait()
        except TimeoutError:
            raise Unanswered("the broker does not answer") from None
        if self.is_lost:
            raise Unanswered("the broker is gone")
        results = tuple(self._result(transaction) for transaction in request.transactions)
        return AddPartitionsToTxnResponse(
            throttle_time=timedelta(0), error_code=ErrorCode.none, results_by_transaction=results
        )

    def _result(self, transaction: Any) -> AddPartitionsToTxnResult:
        places = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        asked = Asked(transaction.transactional_id, producer, tuple(places), adds=not transaction.verify_only)
        try:
            codes = self._answer(asked)
        except Refused as refusal:
            codes = dict.fromkeys(places, refusal.code)
        topics = tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ),
            )
            for topic in transaction.topics
        )
        return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)

    def _answer(self, asked: Asked) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(asked)
        if self.code is not ErrorCode.none:
            raise Refused(self.code)
        return {place: self.codes.get(place, ErrorCode.none) for place in asked.partitions}
