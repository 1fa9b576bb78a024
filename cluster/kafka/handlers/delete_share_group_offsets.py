"""DeleteShareGroupOffsets (92): deletes the share states of topics for a share group without members (KIP-932)."""

from kio.schema.delete_share_group_offsets.v0.request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DELETE, GROUP, READ, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows

KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
RIGHTS: Rights = (Right(DELETE, GROUP), Right(READ, TOPIC))
ITEMS_MAX = 10_000
"""Each partition of the topics is one request to a share coordinator."""


async def handle(request: DeleteShareGroupOffsetsRequest, call: Call) -> DeleteShareGroupOffsetsResponse:
    image = call.services.quorum.image
    try:
        call.require(DELETE, GROUP, request.group_id)
        if not request.group_id:
            raise Refused(ErrorCode.invalid_group_id)
        readable = await call.permitted(READ, TOPIC, (topic.topic_name for topic in request.topics))
        wanted = [topic.topic_name for topic in request.topics if topic.topic_name in readable]
        # As in Kafka, a request without any permitted topic does not ask the group.
        is_asked = bool(wanted) or not request.topics
        shares = call.services.groups.shares
        outcomes = await shares.delete_offsets(request.group_id, dict.fromkeys(wanted)) if is_asked else {}
    except Refused as refusal:
        return DeleteShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE, error_code=refusal.code, error_message=refusal.message, responses=()
        )

    def topic_row(topic: DeleteShareGroupOffsetsRequestTopic) -> DeleteShareGroupOffsetsResponseTopic:
        name = topic.topic_name
        known = image.topics_by_name.get(name) if name in readable else None
        refusal = outcomes[name] if name in readable else refusal_of(TOPIC)
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=None if known is None else known.id,
            error_code=ErrorCode.none if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
        )

    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=rows(topic_row, request.topics),
    )
