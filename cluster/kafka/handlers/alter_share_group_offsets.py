"""AlterShareGroupOffsets (91): sets the start offsets of a share group without members (KIP-932).

A group that does not exist is created. Records before the offset are done for the group, those from it on are new.
"""

from functools import partial

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import GROUP, READ, TOPIC, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.types import TopicPartition

KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
RIGHTS: Rights = (Right(READ, GROUP), Right(READ, TOPIC))
ITEMS_MAX = 10_000
"""Each partition is one request to a share coordinator."""


async def handle(request: AlterShareGroupOffsetsRequest, call: Call) -> AlterShareGroupOffsetsResponse:
    image = call.services.quorum.image
    try:
        call.require(READ, GROUP, request.group_id)
        if not request.group_id:
            raise Refused(ErrorCode.invalid_group_id)
        readable = await call.permitted(READ, TOPIC, (topic.topic_name for topic in request.topics))
        wanted = (
            (topic.topic_name, topic.partitions if topic.topic_name in readable else ()) for topic in request.topics
        )
        offsets = {
            TopicPartition(name, partition.partition_index): int(partition.start_offset)
            async for name, partition in call.turns.within(wanted)
        }
        # As in Kafka, a request without any permitted topic does not ask the group.
        is_asked = bool(readable) or not request.topics
        outcomes = await call.services.groups.shares.reset(request.group_id, offsets) if is_asked else {}
    except Refused as refusal:
        return AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE, error_code=refusal.code, error_message=refusal.message, responses=()
        )

    def partition_row(
        name: str, partition: AlterShareGroupOffsetsRequestPartition
    ) -> AlterShareGroupOffsetsResponsePartition:
        index = partition.partition_index
        refusal = outcomes.get(TopicPartition(name, index)) if name in readable else refusal_of(TOPIC)
        return AlterShareGroupOffsetsResponsePartition(
            partition_index=index,
            error_code=ErrorCode.none if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
        )

    def topic_row(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
        known = image.topics_by_name.get(topic.topic_name)
        is_shown = known is not None and topic.topic_name in readable
        return AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=known.id if known is not None and is_shown else None,
            partitions=rows(partial(partition_row, topic.topic_name), topic.partitions),
        )

    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=rows(topic_row, request.topics),
    )
