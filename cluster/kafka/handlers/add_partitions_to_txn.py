"""AddPartitionsToTxn (24): partitions that a transaction writes to, before the first write to each.

Version notes: up to 3 a client names the partitions of its transaction; from 4 on, brokers ask for several transactions
at once (KIP-890): they verify that a partition is in its transaction, or add it for a client that does not. 2 adds
PRODUCER_FENCED.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.transactions import code_for, codes_of_unknown
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
RIGHTS: Rights = (
    Right(WRITE, TRANSACTIONAL_ID, "versions 0 to 3, of clients"),
    Right(WRITE, TOPIC, "versions 0 to 3"),
    Right(CLUSTER_ACTION, CLUSTER, "versions 4 and 5, of brokers"),
)

_FIRST_OF_BROKERS = 4
_FIRST_WITH_FENCED = 2


def upgrade_request(request: Any, version: int) -> AddPartitionsToTxnRequest:
    """Upgrade a request. Before version 4 it is about one transaction."""
    if version >= _FIRST_OF_BROKERS:
        return AddPartitionsToTxnRequest(transactions=request.transactions)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))


def downgrade_response(response: AddPartitionsToTxnResponse, version: int) -> Any:
    if version >= _FIRST_OF_BROKERS:
        return response
    (only,) = response.results_by_transaction
    return SimpleNamespace(throttle_time=response.throttle_time, results_by_topic_v3_and_below=only.topic_results)


async def handle(request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse:
    is_of_brokers = call.version >= _FIRST_OF_BROKERS
    if is_of_brokers and not call.may(CLUSTER_ACTION, CLUSTER):
        refused = ErrorCode.cluster_authorization_failed
        return AddPartitionsToTxnResponse(throttle_time=NO_THROTTLE, error_code=refused, results_by_transaction=())

    async def one(transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        return await _result(transaction, call)

    if len(request.transactions) == 1:
        # A client's request for one transaction is handled in this task.
        results = [await one(transaction) for transaction in request.transactions]
    else:
        results = await call.turns.gather(one, request.transactions)
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results_by_transaction=tuple(results)
    )


async def _result(transaction: AddPartitionsToTxnTransaction, call: Call) -> AddPartitionsToTxnResult:
    asked = await call.turns.run(by_topic((topic.name, topic.partitions) for topic in transaction.topics))
    partitions = [TopicPartition(topic, index) async for topic, index in call.turns.within(asked.items())]
    codes: Mapping[TopicPartition, ErrorCode] = {}
    code_of_others = ErrorCode.none
    try:
        if call.version < _FIRST_OF_BROKERS:
            call.require(WRITE, TRANSACTIONAL_ID, transaction.transactional_id)
            writable = await call.permitted(WRITE, TOPIC, asked)
        else:
            writable = frozenset(asked)
        codes = await call.turns.run(codes_of_unknown(partitions, writable, call.services.quorum.image))
        codes = codes or await _codes(transaction, partitions, call)
    except Refused as refusal:
        code_of_others = code_for(refusal.code, knows_fenced=call.version >= _FIRST_WITH_FENCED)

    def topic_row(topic: str) -> AddPartitionsToTxnTopicResult:
        return AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=rows(
                lambda index: _row(index, codes.get(TopicPartition(topic, index), code_of_others)), asked[topic]
            ),
        )

    return AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=rows(topic_row, asked))


async def _codes(
    transaction: AddPartitionsToTxnTransaction, partitions: list[TopicPartition], call: Call
) -> Mapping[TopicPartition, ErrorCode]:
    """Verify or add the partitions. Return the codes of those that have one. Raises Refused."""
    coordinator = call.services.transactions
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
    if partitions:
        is_v2 = call.version >= _FIRST_OF_BROKERS
        await coordinator.add_partitions(
            transaction.transactional_id,
            producer,
            partitions,
            is_v2=is_v2,
            connection=0 if is_v2 else call.connection,
        )
    return {}


def _row(index: int, code: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
