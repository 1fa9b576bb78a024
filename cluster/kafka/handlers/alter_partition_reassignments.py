"""AlterPartitionReassignments (45): moves partitions to other brokers, or cancels ongoing reassignments (KIP-455).

A successful response means that the reassignment has begun. It ends once all new replicas are in sync; until then
ListPartitionReassignments shows it.
"""

from collections.abc import Iterator

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import generated
from cordwood.cluster.metadata.commands import ReassignPartition
from cordwood.cluster.metadata.elections import target_of
from cordwood.cluster.metadata.image import Image

KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)


async def handle(request: AlterPartitionReassignmentsRequest, call: Call) -> AlterPartitionReassignmentsResponse:
    may_resize = request.allow_replication_factor_change
    refusal = None if call.may(ALTER, CLUSTER) else refusal_of(CLUSTER)

    named = call.turns.within((topic.name, topic.partitions) for topic in request.topics)
    wanted = [partition async for partition in named]

    async def moved(wanted: tuple[str, ReassignablePartition]) -> ReassignablePartitionResponse:
        return _row(wanted[1], refusal) if refusal else await _move(*wanted, call, may_resize=may_resize)

    results = await call.turns.gather(moved, wanted)

    def topic_rows() -> Iterator[ReassignableTopicResponse]:
        end = 0
        for topic in request.topics:
            begin, end = end, end + len(topic.partitions)
            yield ReassignableTopicResponse(name=topic.name, partitions=tuple(results[begin:end]))

    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=may_resize,
        error_code=refusal.code if refusal else ErrorCode.none,
        error_message=refusal.message if refusal else None,
        responses=generated(topic_rows, len(request.topics)),
    )


async def _move(
    topic: str, wanted: ReassignablePartition, call: Call, *, may_resize: bool
) -> ReassignablePartitionResponse:
    try:
        await propose(_command(topic, wanted, call.services.quorum.image, may_resize=may_resize), call)
    except Refused as refusal:
        return _row(wanted, refusal)
    return _row(wanted, None)


def _row(wanted: ReassignablePartition, refusal: Refused | None) -> ReassignablePartitionResponse:
    code, message = (ErrorCode.none, None) if refusal is None else (refusal.code, refusal.message)
    return ReassignablePartitionResponse(partition_index=wanted.partition_index, error_code=code, error_message=message)


def _command(topic: str, wanted: ReassignablePartition, image: Image, *, may_resize: bool) -> ReassignPartition:
    """Validate a reassignment against the image and return its command. Raises Refused."""
    known = image.topics_by_name.get(topic)
    if known is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {topic}.")
    partition = image.partition(known.id, wanted.partition_index)
    if partition is None:
        message = f"Unable to find partition {topic}:{wanted.partition_index}."
        raise Refused(ErrorCode.unknown_topic_or_partition, message)
    if wanted.replicas is not None and len(wanted.replicas) > len(image.brokers):
        message = f"{len(wanted.replicas)} replicas are named, but only {len(image.brokers)} broker(s) are registered."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    replicas = None if wanted.replicas is None else tuple(wanted.replicas)
    factor = len(target_of(partition))
    if replicas is not None and not may_resize and len(replicas) != factor:
        message = f"The replication factor is changed from {factor} to {len(replicas)}"
        raise Refused(ErrorCode.invalid_replication_factor, message)
    return ReassignPartition(known.id, wanted.partition_index, replicas)
