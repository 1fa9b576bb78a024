"""InitProducerId (22): a producer id for an idempotent producer (KIP-98), and an epoch for a transactional one.

A transactional producer gets its transactional id's producer id with a new epoch, which fences all producers with an
earlier one.

Version notes: 3 adds the current id and epoch of a producer that recovers from an error (KIP-360); 4 adds
PRODUCER_FENCED. Version 6 (KIP-939, two-phase commit) is not stable in Kafka.
"""

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5 import InitProducerIdRequest, InitProducerIdResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import (
    CLUSTER,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Right,
    Rights,
    refusal_of,
)
from cordwood.cluster.kafka.transactions import code_for
from cordwood.storage.types import ProducerIdAndEpoch

KEY = ApiKey.INIT_PRODUCER_ID
RIGHTS: Rights = (
    Right(WRITE, TRANSACTIONAL_ID, "for a transactional producer"),
    Right(IDEMPOTENT_WRITE, CLUSTER, "for an idempotent one, or WRITE on any topic at all"),
)

NONE = -1
_FIRST_WITH_FENCED = 4


async def handle(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    try:
        producer = await _init(request, call)
    except Refused as refusal:
        code = code_for(refusal.code, knows_fenced=call.version >= _FIRST_WITH_FENCED)
        return InitProducerIdResponse(throttle_time=NO_THROTTLE, error_code=code, producer_epoch=NONE)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


async def _init(request: InitProducerIdRequest, call: Call) -> ProducerIdAndEpoch:
    if request.transactional_id is None:
        if not (call.may_see(IDEMPOTENT_WRITE, CLUSTER) or call.may_any(WRITE, TOPIC)):
            raise refusal_of(CLUSTER)
        # An idempotent producer that lost its state sends its old id: a new one is equivalent.
        return ProducerIdAndEpoch(await call.services.producer_ids.next(), 0)
    call.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    has_id, has_epoch = request.producer_id != NONE, request.producer_epoch != NONE
    if has_id != has_epoch:
        raise Refused(ErrorCode.invalid_request)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None
    timeout_ms = round(request.transaction_timeout.total_seconds() * 1000)
    return await call.services.transactions.init_producer_id(request.transactional_id, timeout_ms, expected)
