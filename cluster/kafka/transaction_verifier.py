"""Verification of transactional appends: the leader of a partition asks the coordinator of the transaction (KIP-890).

A client of the first protocol has added the partition by AddPartitionsToTxn, which is verified; for one of the second
protocol its first append adds it. Requests to other brokers are gathered: one at a time to each coordinator.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse, AddPartitionsToTxnResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.leaders import leader_of
from cordwood.cluster.proposals.topics import TRANSACTION_STATE
from cordwood.replication.tasks import Tasks
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

TRANSACTIONS_PER_REQUEST_MAX = 1000
ANSWER_S = 2.0
"""How long a coordinator on another broker is awaited. The client's connection waits meanwhile, also for its batches of
other partitions; after a retriable error it sends the batch again."""
CONCURRENT_RETRY_S, CONCURRENT_S = 0.005, 0.1
"""Interval and time for which a partition is added again while the previous transaction ends (KAFKA-18575).

The client would wait for its retry backoff, usually 100 ms.
"""

UNREACHED = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)
"""Codes with which no transaction coordinator has verified anything, and a later attempt may succeed."""
RETRIED = UNREACHED | {ErrorCode.concurrent_transactions}
"""Codes after which a client sends its batch again."""

Codes = dict[TopicPartition, ErrorCode]
Ask = Callable[[BrokerId, Any, float], Awaitable[Any]]
"""Sends a request to another broker and returns the response, within so many seconds. Raises Unanswered."""


class TransactionProtocol(Enum):
    """The support of a client for transactions, by the version of its request."""

    FIRST = "it has added the partition, and does not know TRANSACTION_ABORTABLE"
    KNOWS_ABORTABLE = "it has added the partition"
    ADDS = "its first append to a partition adds it"


class Verification(NamedTuple):
    """The partitions of a producer's request that are to be in its transaction."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    protocol: TransactionProtocol


class LocalCoordinator(Protocol):
    """This broker's transaction coordinator, as far as verification needs it. Methods raise Refused."""

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Codes: ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        is_v2: bool = False,
    ) -> None: ...


class _Waiting(NamedTuple):
    verification: Verification
    codes: "asyncio.Future[Codes]"

    def answer(self, found: Mapping[TopicPartition, ErrorCode], otherwise: ErrorCode) -> None:
        if not self.codes.done():
            self.codes.set_result({place: found.get(place, otherwise) for place in self.verification.partitions})


class TransactionVerifier:
    """The verifications of this broker's partitions."""

    def __init__(self, broker_id: int, transactions: LocalCoordinator, image: Callable[[], Image], ask: Ask) -> None:
        self._broker_id, self._transactions, self._image, self._ask = broker_id, transactions, image, ask
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._waiting: defaultdict[BrokerId, list[_Waiting]] = defaultdict(list)
        self._asked: set[BrokerId] = set()

    async def close(self) -> None:
        await self._tasks.close()

    async def verify(self, verification: Verification) -> Codes:
        """Return a code for each partition: `none` if it is in the producer's ongoing transaction.

        NETWORK_EXCEPTION if the coordinator has not answered.
        """
        adds = verification.protocol is TransactionProtocol.ADDS
        deadline = self._loop.time() + CONCURRENT_S
        while True:
            codes = await self._verify(verification)
            is_concurrent = ErrorCode.concurrent_transactions in codes.values()
            if not (adds and is_concurrent and self._loop.time() < deadline):
                return {place: _for_client(code, verification.protocol) for place, code in codes.items()}
            await asyncio.sleep(CONCURRENT_RETRY_S)

    async def _verify(self, verification: Verification) -> Codes:
        leader = self._leader_of(verification.transactional_id)
        if leader is None:
            return dict.fromkeys(verification.partitions, ErrorCode.coordinator_not_available)
        if leader == self._broker_id:
            return await self._verify_here(verification)
        codes: asyncio.Future[Codes] = self._loop.create_future()
        self._waiting[leader].append(_Waiting(verification, codes))
        if leader not in self._asked:
            self._asked.add(leader)
            self._tasks.spawn(self._ask_all(leader))
        return await codes

    def _leader_of(self, transactional_id: str) -> BrokerId | None:
        topic = self._image().topics_by_name.get(TRANSACTION_STATE)
        if topic is None:
            return None
        partition = partition_of(transactional_id, len(topic.partitions))
        return leader_of(TopicPartition(TRANSACTION_STATE, partition), self._image())

    async def _verify_here(self, verification: Verification) -> Codes:
        transactional_id, producer, partitions, protocol = verification
        try:
            if protocol is not TransactionProtocol.ADDS:
                return self._transactions.verify_partitions(transactional_id, producer, partitions)
            await self._transactions.add_partitions(transactional_id, producer, partitions, is_v2=True)
        except Refused as refusal:
            return dict.fromkeys(partitions, refusal.code)
        return dict.fromkeys(partitions, ErrorCode.none)

    async def _ask_all(self, leader: BrokerId) -> None:
        """Ask a coordinator about all transactions that wait for it, and about those that come meanwhile."""
        try:
            while asked := self._take(leader):
                found: Mapping[str, Codes] = {}
                code = ErrorCode.network_exception
                try:
                    response = await self._ask(leader, _request(asked), ANSWER_S)
                    code = response.error_code or code
                    found = _by_transaction(response)
                except Unanswered:
                    pass
                finally:
                    for transactional_id, waiting in asked.items():
                        waiting.answer(found.get(transactional_id, {}), code)
        finally:
            self._asked.discard(leader)
            for waiting in self._waiting.pop(leader, ()):
                waiting.answer({}, ErrorCode.network_exception)

    def _take(self, leader: BrokerId) -> dict[str, _Waiting]:
        """Take the next request's transactions, each transactional id once."""
        taken: dict[str, _Waiting] = {}
        rest: list[_Waiting] = []
        for waiting in self._waiting.pop(leader, ()):
            transactional_id = waiting.verification.transactional_id
            if waiting.codes.done():
                # Its caller was cancelled.
                continue
            if transactional_id in taken or len(taken) == TRANSACTIONS_PER_REQUEST_MAX:
                rest.append(waiting)
            else:
                taken[transactional_id] = waiting
        if rest:
            self._waiting[leader] = rest
        return taken


def for_produce(code: ErrorCode, protocol: TransactionProtocol) -> ErrorCode:
    """Return the code of a batch that was not verified, in a Produce response.

    Producers send again after NOT_ENOUGH_REPLICAS, without a look for another leader. They do not know the codes of
    coordinators in this response.
    """
    is_unknown = code is ErrorCode.concurrent_transactions and protocol is not TransactionProtocol.ADDS
    return ErrorCode.not_enough_replicas if is_unknown or code in UNREACHED else code


def _request(asked: Mapping[str, _Waiting]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=tuple(_transaction(each.verification) for each in asked.values()))


def _transaction(verification: Verification) -> AddPartitionsToTxnTransaction:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in verification.partitions:
        indexes[topic].append(index)
    topics = [AddPartitionsToTxnTopic(name=name, partitions=tuple(found)) for name, found in indexes.items()]
    return AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer.producer_id,
        producer_epoch=verification.producer.epoch,
        verify_only=verification.protocol is not TransactionProtocol.ADDS,
        topics=tuple(topics),
    )


def _by_transaction(response: AddPartitionsToTxnResponse) -> dict[str, Codes]:
    return {result.transactional_id: _codes(result) for result in response.results_by_transaction}


def _codes(result: AddPartitionsToTxnResult) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _for_client(code: ErrorCode, protocol: TransactionProtocol) -> ErrorCode:
    """Return the code that the client gets: Produce has INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED."""
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and protocol is TransactionProtocol.FIRST:
        return ErrorCode.invalid_txn_state
    return code
