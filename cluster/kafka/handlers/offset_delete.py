"""OffsetDelete (47): deletes committed offsets of a group for topics that it no longer reads (KIP-496)."""

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Codes
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DELETE, GROUP, READ, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.types import TopicPartition

KEY = ApiKey.OFFSET_DELETE
RIGHTS: Rights = (Right(DELETE, GROUP), Right(READ, TOPIC))
AT_ONCE_MAX = 500
"""Maximum number of offsets that are deleted as one record batch."""


async def handle(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    if not call.may(DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(
            error_code=ErrorCode.group_authorization_failed, throttle_time=NO_THROTTLE, topics=()
        )
    image = call.services.quorum.image
    readable = await call.permitted(READ, TOPIC, (topic.name for topic in request.topics))
    asked = call.turns.within((topic.name, topic.partitions) for topic in request.topics)
    places = (TopicPartition(name, partition.partition_index) async for name, partition in asked)
    known = [place async for place in places if place[0] in readable and image.has_partition(*place)]
    codes: Codes = {}
    try:
        # One call even for no partition, to check that the group exists.
        for start in range(0, max(len(known), 1), AT_ONCE_MAX):
            # Partitions without an offset wait for no write.
            await call.turns.turn()
            some = known[start : start + AT_ONCE_MAX]
            codes |= await call.services.groups.delete_offsets(request.group_id, some)
    except Refused as refusal:
        return OffsetDeleteResponse(error_code=refusal.code, throttle_time=NO_THROTTLE, topics=())

    def partition_row(topic: str, partition: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
        index = partition.partition_index
        code = ErrorCode.topic_authorization_failed
        if topic in readable:
            code = codes.get(TopicPartition(topic, index), ErrorCode.unknown_topic_or_partition)
        return OffsetDeleteResponsePartition(partition_index=index, error_code=code)

    def topic_row(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
        return OffsetDeleteResponseTopic(
            name=topic.name, partitions=rows(partial(partition_row, topic.name), topic.partitions)
        )

    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics)
    )
