"""AcknowledgeQueue (515): acknowledges records that this broker handed out over HTTP, by their receipts.

Any broker takes receipts from HTTP clients. A broker sends it on behalf of an HTTP client, to the broker whose share
group member holds the records.
"""

from kio.schema.errors import ErrorCode

from cordwood.client.queue_messages import AcknowledgeQueueRequest, AcknowledgeQueueResponse
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, Right, Rights
from cordwood.cluster.operations.queue_receipts import Receipt

KEY = ApiKey.ACKNOWLEDGE_QUEUE
RIGHTS: Rights = (Right(READ, GROUP), Right(READ, TOPIC, "of each receipt; without it, the receipt is refused"))

ITEMS_MAX = 1_000
ACCEPT, RENEW = 1, 4


async def handle(request: AcknowledgeQueueRequest, call: Call) -> AcknowledgeQueueResponse:
    try:
        call.require(READ, GROUP, request.group_id)
        if not ACCEPT <= request.acknowledge_type <= RENEW:
            sentence = f"There is no type of acknowledgement {request.acknowledge_type}."
            raise Refused(ErrorCode.invalid_request, sentence)
        receipts = [Receipt.of(text) for text in request.receipts]
        allowed = [receipt if receipt is not None and _may_read(receipt, call) else None for receipt in receipts]
        queues = call.services.http_queues
        if queues is None:
            outcomes, lock_ms = [ErrorCode.invalid_record_state] * len(receipts), 0
        else:
            outcomes, lock_ms = await queues.acknowledge(request.group_id, allowed, request.acknowledge_type)
        for at, (receipt, may) in enumerate(zip(receipts, allowed, strict=True)):
            if receipt is not None and may is None:
                outcomes[at] = ErrorCode.topic_authorization_failed
    except Refused as refusal:
        return AcknowledgeQueueResponse(error_code=refusal.code, error_message=refusal.message, lock_ms=0, outcomes=())
    return AcknowledgeQueueResponse(
        error_code=ErrorCode.none,
        error_message=None,
        lock_ms=lock_ms,
        outcomes=tuple(code.value for code in outcomes),
    )


def _may_read(receipt: Receipt, call: Call) -> bool:
    """Return whether the client may read the topic of a receipt. One of a deleted topic is refused by its state."""
    topic = call.services.quorum.image.topics_by_id.get(receipt.topic_id)
    return topic is None or call.may(READ, TOPIC, topic.name)
