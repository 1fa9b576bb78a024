"""DescribeSharePartitions (516): the records in flight of a share group, in the partitions that this broker leads.

Kafka's APIs show only what share coordinators have stored: the start offset and the lag. Locks are known to the leader
alone.
"""

from kio.schema.errors import ErrorCode

from cordwood.client.queue_messages import (
    DescribedSharePartition,
    DescribeSharePartitionsRequest,
    DescribeSharePartitionsResponse,
)
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import DESCRIBE, GROUP, TOPIC, Right, Rights

KEY = ApiKey.DESCRIBE_SHARE_PARTITIONS
RIGHTS: Rights = (
    Right(DESCRIBE, GROUP),
    Right(DESCRIBE, TOPIC, "partitions of other topics are left out"),
)


async def handle(request: DescribeSharePartitionsRequest, call: Call) -> DescribeSharePartitionsResponse:
    try:
        call.require(DESCRIBE, GROUP, request.group_id)
    except Refused as refusal:
        return DescribeSharePartitionsResponse(error_code=refusal.code, error_message=refusal.message, partitions=())
    found = [
        DescribedSharePartition(
            topic_name=view.topic,
            partition_index=view.partition,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            in_flight=view.in_flight,
            acquired=view.acquired,
            delivery_count_max=view.delivery_count_max,
        )
        async for view in call.turns.each(call.services.share.views(request.group_id))
        if call.may_see(DESCRIBE, TOPIC, view.topic)
    ]
    return DescribeSharePartitionsResponse(error_code=ErrorCode.none, error_message=None, partitions=tuple(found))
