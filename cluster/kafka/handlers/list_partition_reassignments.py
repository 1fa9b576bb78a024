"""ListPartitionReassignments: which partitions are on their way to other brokers (KIP-455)."""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.metadata.elections import is_moving
from cordwood.cluster.metadata.image import TopicImage

KEY, VERSIONS = ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1)


async def handle(request: ListPartitionReassignmentsRequest, call: Call) -> ListPartitionReassignmentsResponse:
    topics = call.services.quorum.image.topics_by_name
    if request.topics is None:
        found = [_moving(topic, range(len(topic.partitions))) for topic in topics.values()]
    else:
        # What does not exist is not being moved, as Kafka answers too.
        found = [_moving(topics[row.name], row.partition_indexes) for row in request.topics if row.name in topics]
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(topic for topic in found if topic.partitions),
    )


def _moving(topic: TopicImage, indexes: Iterable[int]) -> OngoingTopicReassignment:
    known = ((index, topic.partitions[index]) for index in indexes if index in range(len(topic.partitions)))
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=tuple(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=partition.replicas,
                adding_replicas=partition.adding,
                removing_replicas=partition.removing,
            )
            for index, partition in known
            if is_moving(partition)
        ),
    )
