"""AddOffsetsToTxn (25): the offsets of a consumer group become part of a transaction, before they are sent.

Version notes: 2 adds PRODUCER_FENCED. Clients of the second version of the protocol (KIP-890) do not send it.
"""

from kio.schema.add_offsets_to_txn.v4 import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, TRANSACTIONAL_ID, WRITE, Right, Rights
from cordwood.cluster.kafka.transactions import code_for
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

KEY = ApiKey.ADD_OFFSETS_TO_TXN
RIGHTS: Rights = (Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP))

_FIRST_WITH_FENCED = 2


async def handle(request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    code = ErrorCode.none
    try:
        call.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        call.require(READ, GROUP, request.group_id)
        partition = TopicPartition(CONSUMER_OFFSETS, await call.services.groups.place(request.group_id))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        await call.services.transactions.add_partitions(
            request.transactional_id, producer, [partition], connection=call.connection
        )
    except Refused as refusal:
        code = code_for(refusal.code, knows_fenced=call.version >= _FIRST_WITH_FENCED)
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
