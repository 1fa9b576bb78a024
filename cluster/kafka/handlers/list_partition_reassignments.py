"""ListPartitionReassignments (46): the ongoing partition reassignments (KIP-455)."""

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.elections import is_moving
from cordwood.cluster.metadata.image import PartitionImage

KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER),)


async def handle(request: ListPartitionReassignmentsRequest, call: Call) -> ListPartitionReassignmentsResponse:
    if not call.may(DESCRIBE, CLUSTER):
        refusal = refusal_of(CLUSTER)
        return ListPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE, error_code=refusal.code, error_message=refusal.message, topics=()
        )
    topics = call.services.quorum.image.topics_by_name
    if request.topics is None:
        asked = ((name, range(len(topic.partitions))) for name, topic in topics.items())
    else:
        asked = ((row.name, row.partition_indexes) for row in request.topics)
    moving: dict[str, dict[int, PartitionImage]] = {}
    async for name, index in call.turns.within(asked):
        # As in Kafka, an unknown partition is left out and is no error.
        partitions = topics[name].partitions if name in topics else ()
        if index in range(len(partitions)) and is_moving(partitions[index]):
            moving.setdefault(name, {})[index] = partitions[index]

    def topic_row(name: str) -> OngoingTopicReassignment:
        return OngoingTopicReassignment(name=name, partitions=rows(_ongoing, moving[name].items()))

    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=rows(topic_row, moving)
    )


def _ongoing(moving: tuple[int, PartitionImage]) -> OngoingPartitionReassignment:
    index, partition = moving
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
    )
