"""AlterPartitionReassignments: give a partition to other brokers (KIP-455).

Partitions stay with the brokers that have them: those are accepted as a target, and done at once.
"""

from collections import Counter

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused
from cordwood.cluster.metadata.commands import Assignment
from cordwood.cluster.metadata.image import Image

KEY, VERSIONS = ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(2)


async def handle(request: AlterPartitionReassignmentsRequest, call: Call) -> AlterPartitionReassignmentsResponse:
    image, may_resize = call.services.quorum.image, request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=may_resize,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_partition(topic, wanted, image, may_resize) for wanted in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _partition(
    topic: ReassignableTopic, wanted: ReassignablePartition, image: Image, may_resize: bool
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.none, None
    try:
        _check(topic.name, wanted, image, may_resize)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return ReassignablePartitionResponse(partition_index=wanted.partition_index, error_code=code, error_message=message)


def _check(topic: str, wanted: ReassignablePartition, image: Image, may_resize: bool) -> None:
    """Raises Refused unless the partition is with the wanted brokers already."""
    known = image.topics_by_name.get(topic)
    if known is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {topic}.")
    if wanted.partition_index not in range(len(known.partitions)):
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {topic}:{wanted.partition_index}."
        )
    if wanted.replicas is None:
        raise Refused(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    _check_brokers(wanted.replicas, image)
    replicas = known.partitions[wanted.partition_index].replicas
    if not may_resize and len(wanted.replicas) != len(replicas):
        message = f"The replication factor is changed from {len(replicas)} to {len(wanted.replicas)}"
        raise Refused(ErrorCode.invalid_replication_factor, message)
    if tuple(wanted.replicas) != replicas:
        message = "Moving partitions between brokers is not supported: they stay where they were created."
        raise Refused(ErrorCode.invalid_replica_assignment, message)


def _check_brokers(replicas: Assignment, image: Image) -> None:
    what = "The manual partition assignment includes"
    if not replicas:
        raise Refused(ErrorCode.invalid_replica_assignment, f"{what} an empty replica list.")
    for broker, times in Counter(replicas).items():
        if broker not in image.brokers:
            message = f"{what} broker {broker}, but no such broker is registered."
            raise Refused(ErrorCode.invalid_replica_assignment, message)
        if times > 1:
            raise Refused(ErrorCode.invalid_replica_assignment, f"{what} the broker {broker} more than once.")
