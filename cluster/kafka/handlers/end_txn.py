"""EndTxn (26): commits or aborts a transaction. The response means that the decision is durable; markers follow.

Version notes: 2 adds PRODUCER_FENCED; 5 is the second version of the protocol (KIP-890): each transaction has its own
producer epoch, and the response has the producer id and epoch of the next one.
"""

from kio.schema.end_txn.v5 import EndTxnRequest, EndTxnResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import TRANSACTIONAL_ID, WRITE, Right, Rights
from cordwood.cluster.kafka.transactions import code_for
from cordwood.storage.types import ProducerIdAndEpoch

KEY = ApiKey.END_TXN
RIGHTS: Rights = (Right(WRITE, TRANSACTIONAL_ID),)

_FIRST_OF_V2 = 5
_FIRST_WITH_FENCED = 2


async def handle(request: EndTxnRequest, call: Call) -> EndTxnResponse:
    try:
        call.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        producer = await call.services.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            is_v2=call.version >= _FIRST_OF_V2,
            connection=call.connection,
        )
    except Refused as refusal:
        code = code_for(refusal.code, knows_fenced=call.version >= _FIRST_WITH_FENCED)
        return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
