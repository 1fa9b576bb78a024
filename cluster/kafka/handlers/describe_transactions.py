"""DescribeTransactions (65): transactional ids that this broker coordinates, with their transactions (KIP-664)."""

from datetime import UTC, datetime, timedelta

from kio.schema.describe_transactions.v0 import DescribeTransactionsRequest, DescribeTransactionsResponse
from kio.schema.describe_transactions.v0.response import TopicData, TransactionState
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.rights import DESCRIBE, TOPIC, TRANSACTIONAL_ID, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.steps import distinct

KEY = ApiKey.DESCRIBE_TRANSACTIONS
RIGHTS: Rights = (
    Right(DESCRIBE, TRANSACTIONAL_ID),
    Right(DESCRIBE, TOPIC, "a transaction is described without the other topics"),
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = timedelta(0)


async def handle(request: DescribeTransactionsRequest, call: Call) -> DescribeTransactionsResponse:
    asked = await call.turns.run(distinct(request.transactional_ids))
    states = [await _state(transactional_id, call) async for transactional_id in call.turns.each(asked)]
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


async def _state(transactional_id: str, call: Call) -> TransactionState:
    try:
        call.require(DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        described = call.services.transactions.describe(transactional_id)
    except Refused as refusal:
        return TransactionState(
            error_code=refusal.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=_NOTHING,
            transaction_start_time=_EPOCH,
            producer_id=-1,
            producer_epoch=-1,
            topics=(),
        )
    seen = ((topic, (index,)) for topic, index in described.partitions if call.may_see(DESCRIBE, TOPIC, topic))
    partitions = await call.turns.run(by_topic(seen))
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=described.state.value,
        transaction_timeout=timedelta(milliseconds=described.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=described.start_ms),
        producer_id=described.producer.producer_id,
        producer_epoch=described.producer.epoch,
        topics=rows(lambda topic: TopicData(topic=topic, partitions=tuple(partitions[topic])), partitions),
    )
