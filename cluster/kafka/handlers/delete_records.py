"""DeleteRecords: a partition's start is moved up, and what lies below it is gone for readers at once (KIP-107)."""

from itertools import islice

from kio.schema.delete_records.v2 import DeleteRecordsRequest, DeleteRecordsResponse
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsTopic
from kio.schema.delete_records.v2.response import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.errors import InvalidRecord, OffsetOutOfRange

KEY, VERSIONS = ApiKey.DELETE_RECORDS, range(3)

HIGH_WATERMARK = -1
"""Asks for everything that is committed to be deleted."""
NO_OFFSET = -1


async def handle(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    asked = ((topic.name, wanted) for topic in request.topics for wanted in topic.partitions)
    results = iter([await _partition(topic, wanted, call) async for topic, wanted in call.turns.each(asked)])

    def topic_row(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
        return DeleteRecordsTopicResult(name=topic.name, partitions=tuple(islice(results, len(topic.partitions))))

    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


async def _partition(topic: str, wanted: DeleteRecordsPartition, call: Call) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        start = await _delete(topic, index, wanted.offset, call)
    except InvalidRecord:
        code = ErrorCode.policy_violation
    except EXPECTED as error:
        code = code_of(error)
    else:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start, error_code=ErrorCode.none)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET, error_code=code)


async def _delete(topic: str, index: int, offset: int, call: Call) -> int:
    """The new log start, once it is on disk: a restart must not bring deleted records back."""
    partition = call.services.replicas.led(topic, index)
    if not partition.log.config.deletable:
        raise InvalidRecord("records of a topic that is only compacted are not deleted by offset")
    wanted = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= partition.high_watermark:
        raise OffsetOutOfRange(f"offset {wanted} is above the high watermark {partition.high_watermark}")
    if wanted > partition.log.log_start:
        partition.log.raise_log_start(wanted)
        partition.log_start_moved()
        await call.services.housekeeping.save(partition)
    return partition.log.log_start
