"""OffsetDelete: forget where a group stood in topics that it no longer reads (KIP-496)."""

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused

KEY, VERSIONS = ApiKey.OFFSET_DELETE, range(1)


async def handle(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    image = call.services.quorum.image
    known = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        if topic.name in image.topics_by_name
        for partition in topic.partitions
        if 0 <= partition.partition_index < len(image.topics_by_name[topic.name].partitions)
    ]
    try:
        codes = await call.services.groups.delete_offsets(request.group_id, known)
    except Refused as refusal:
        return OffsetDeleteResponse(error_code=refusal.code, throttle_time=NO_THROTTLE, topics=())
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index), ErrorCode.unknown_topic_or_partition
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
