"""ListPartitionReassignments: which partitions are on their way to other brokers. None ever is (KIP-455)."""

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call

KEY, VERSIONS = ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1)


async def handle(_request: ListPartitionReassignmentsRequest, _call: Call) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, topics=()
    )
