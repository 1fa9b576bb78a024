"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, for truncation detection (KIP-101, KIP-320)."""

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kio.schema.offset_for_leader_epoch.v4.response import EpochEndOffset, OffsetForLeaderTopicResult

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.replication.partition import Partition
from cordwood.storage.types import NO_EPOCH, NO_OFFSET

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
RIGHTS: Rights = (
    Right(DESCRIBE, TOPIC, "or CLUSTER_ACTION on the cluster"),
    Right(CLUSTER_ACTION, CLUSTER, "or DESCRIBE on each topic"),
)

UNDEFINED = (NO_EPOCH, NO_OFFSET)
"""The result for a leader epoch that does not exist yet, as in Kafka."""


async def handle(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    topics = (topic.topic for topic in request.topics)
    permitted = None if call.may_see(CLUSTER_ACTION, CLUSTER) else await call.permitted(DESCRIBE, TOPIC, topics)

    def topic_row(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        is_permitted = permitted is None or topic.topic in permitted
        partition_row = partial(_partition, call, topic.topic) if is_permitted else _refused
        partitions = rows(partition_row, topic.partitions)
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


def _refused(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(error_code=ErrorCode.topic_authorization_failed, partition=wanted.partition)


def _partition(call: Call, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.services.replicas.led(topic, wanted.partition, wanted.current_leader_epoch)
    except EXPECTED as error:
        return EpochEndOffset(error_code=code_of(error), partition=wanted.partition)
    epoch, end = _end_of(wanted.leader_epoch, partition)
    return EpochEndOffset(error_code=ErrorCode.none, partition=wanted.partition, leader_epoch=epoch, end_offset=end)


def _end_of(wanted: int, partition: Partition) -> tuple[int, int]:
    """Return the largest leader epoch at or below `wanted`, and its end offset.

    If no epoch that old is left, return `wanted` with the start of the earliest epoch.
    """
    # The log end, not the high watermark: a new leader does not know the committed end yet, and a consumer that gets an
    # earlier end takes the records it has read for truncated.
    log = partition.log
    if not 0 <= wanted <= partition.leader_epoch:
        return UNDEFINED
    if wanted == partition.leader_epoch:
        return wanted, log.log_end
    epoch, end = log.epochs.end_of(wanted, log.log_end)
    if epoch == NO_EPOCH:
        # The epoch's records are deleted, or it had none: a consumer past them continues at the log start. Without an
        # end offset it would reset its position.
        return wanted, next((start.offset for start in log.epochs), log.log_end)
    return epoch, end
