"""InitProducerId: a number for an idempotent producer, never given twice (KIP-98)."""

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call

KEY, VERSIONS = ApiKey.INIT_PRODUCER_ID, range(5)


async def handle(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """A transactional id is refused for good, with an error no client tries again: there are no transactions yet."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.transactional_id_authorization_failed,
            producer_epoch=-1,
        )
    # A producer that lost its place asks with its old id (KIP-360): without transactions a new id is as good.
    producer_id = await call.services.producer_ids.next()
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0
    )
