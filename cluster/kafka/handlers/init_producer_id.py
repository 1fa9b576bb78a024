"""InitProducerId (22): a new, unique producer id for an idempotent producer (KIP-98)."""

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call

KEY, VERSIONS = ApiKey.INIT_PRODUCER_ID, range(5)


async def handle(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """Allocate a producer id. A transactional id is refused with a fatal error: there are no transactions yet."""
    # Transactions enter here: a request with a transactional id would go to the transaction coordinator.
    if request.transactional_id is not None:
        return _refused(ErrorCode.transactional_id_authorization_failed)
    # A producer that lost its state sends its old id (KIP-360): without transactions a new id is equivalent.
    try:
        producer_id = await call.services.producer_ids.next()
    except Refused as refusal:
        return _refused(refusal.code)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time=NO_THROTTLE, error_code=code, producer_epoch=-1)
