"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader notices a log that was cut (KIP-101, KIP-320)."""

from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4 import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderPartition, OffsetForLeaderTopic
from kio.schema.offset_for_leader_epoch.v4.response import EpochEndOffset, OffsetForLeaderTopicResult

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rows import rows
from cordwood.replication.partition import NO_EPOCH, Partition

KEY, VERSIONS = ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5)

UNDEFINED = (NO_EPOCH, -1)
"""For an epoch that nobody has led in yet, as from Kafka."""


async def handle(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    def topic_row(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        partitions = rows(partial(_partition, call, topic.topic), topic.partitions)
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


def _partition(call: Call, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.services.replicas.led(topic, wanted.partition, wanted.current_leader_epoch)
    except EXPECTED as error:
        return EpochEndOffset(error_code=code_of(error), partition=wanted.partition)
    epoch, end = _end_of(wanted.leader_epoch, partition)
    return EpochEndOffset(error_code=ErrorCode.none, partition=wanted.partition, leader_epoch=epoch, end_offset=end)


def _end_of(wanted: int, partition: Partition) -> tuple[int, int]:
    """The largest epoch at or below the wanted one and where it ends; the wanted one where nothing that old is left."""
    # By the log's end, not the watermark: a leader that has only just begun does not know how far all is committed, and
    # a reader that is told of an earlier end takes what it has read for truncated.
    log = partition.log
    if not 0 <= wanted <= partition.leader_epoch:
        return UNDEFINED
    if wanted == partition.leader_epoch:
        return wanted, log.log_end
    epoch, end = log.epochs.end_of(wanted, log.log_end)
    if epoch == NO_EPOCH:
        # Its records are deleted, or there were none: a reader behind them goes on where the log begins. Told of no
        # end, it would give up its place.
        return wanted, next((start.offset for start in log.epochs), log.log_end)
    return epoch, end
