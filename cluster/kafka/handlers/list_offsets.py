"""ListOffsets: where a partition starts, ends, or stood at a point in time."""

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v8 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v8.request import ListOffsetsPartition
from kio.schema.list_offsets.v8.response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.replication.partition import Partition
from cordwood.storage.timestamps import Found, first_at_or_after, latest_by_time

KEY, VERSIONS = ApiKey.LIST_OFFSETS, range(1, 9)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
NONE = -1


async def handle(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        partitions = [await _partition(topic.name, wanted, call) for wanted in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition(topic: str, wanted: ListOffsetsPartition, call: Call) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        partition = call.services.replicas.led(topic, index, wanted.current_leader_epoch)
        found = await _look_up(partition, wanted.timestamp, call)
    except EXPECTED as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(error))
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.none)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _look_up(partition: Partition, timestamp: int, call: Call) -> Found | None:
    """Only what is committed counts. Looking by time reads the log, so it is done beside the loop."""
    log, end = partition.log, partition.high_watermark
    if timestamp == LATEST:
        return Found(end, NONE, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(log.log_start, NONE, log.epochs.epoch_at(log.log_start))
    if timestamp == MAX_TIMESTAMP:
        latest: Found | None = await call.services.run_blocking(latest_by_time, log, end)
        return latest
    found: Found | None = await call.services.run_blocking(first_at_or_after, log, timestamp, end)
    return found
