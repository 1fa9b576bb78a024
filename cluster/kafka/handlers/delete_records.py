"""DeleteRecords (21): advances the log start offset; records below it are unreadable immediately (KIP-107).

The response is sent once every in-sync replica has the new log start offset on disk, so that neither a restart nor a
failover brings records back. All partitions of a request begin before the first is awaited.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from kio.schema.delete_records.v2 import DeleteRecordsRequest, DeleteRecordsResponse
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsTopic
from kio.schema.delete_records.v2.response import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.resources.turns import Steps
from cordwood.replication.partition import Partition, PartitionRefused, Refusal
from cordwood.storage.errors import InvalidRecord, OffsetOutOfRange

KEY, VERSIONS = ApiKey.DELETE_RECORDS, range(3)

HIGH_WATERMARK = -1
"""The requested offset that stands for the high watermark: delete all committed records."""
NO_OFFSET = -1
TIMEOUT_MAX_S = 300.0
"""Upper bound of the request's timeout."""


class Asked(NamedTuple):
    """A partition of the request. `number` is its topic's index in the request."""

    number: int
    topic: str
    wanted: DeleteRecordsPartition


class Begun(NamedTuple):
    """A partition with its new log start offset; or the error code."""

    partition: Partition | None
    start: int
    code: ErrorCode


async def handle(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    timeout_s = min(max(request.timeout.total_seconds(), 0.0), TIMEOUT_MAX_S)
    deadline = asyncio.get_running_loop().time() + timeout_s
    names: list[str] = []
    asked = await call.turns.run(_asked(request.topics, names))
    begun = [_begin(topic, wanted, call) async for _, topic, wanted in call.turns.each(asked)]
    results: list[list[DeleteRecordsPartitionResult]] = [[] for _ in names]
    async for (number, _, wanted), state in call.turns.each(zip(asked, begun, strict=True)):
        results[number].append(await _result(wanted, state, deadline))

    def topic_row(number: int) -> DeleteRecordsTopicResult:
        return DeleteRecordsTopicResult(name=names[number], partitions=tuple(results[number]))

    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, range(len(names))))


def _asked(topics: Iterable[DeleteRecordsTopic], names: list[str]) -> Steps[list[Asked]]:
    """Return the partitions of all topics, one step each. Append the topic names to `names`."""
    found: list[Asked] = []
    for number, topic in enumerate(topics):
        names.append(topic.name)
        yield
        for wanted in topic.partitions:
            found.append(Asked(number, topic.name, wanted))
            yield
    return found


def _begin(topic: str, wanted: DeleteRecordsPartition, call: Call) -> Begun:
    try:
        partition = call.services.replicas.led(topic, wanted.partition_index)
        return Begun(partition, _delete(partition, wanted.offset), ErrorCode.none)
    except InvalidRecord:
        return Begun(None, NO_OFFSET, ErrorCode.policy_violation)
    except EXPECTED as error:
        return Begun(None, NO_OFFSET, code_of(error))


def _delete(partition: Partition, offset: int) -> int:
    if not partition.log.config.deletable:
        raise InvalidRecord("records of a topic with cleanup.policy=compact cannot be deleted by offset")
    if partition.view is not None and not partition.view.has_enough_replicas:
        # An out-of-sync replica that is elected later would bring the records back.
        raise PartitionRefused(Refusal.NOT_ENOUGH_REPLICAS)
    start = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= partition.high_watermark:
        raise OffsetOutOfRange(f"offset {start} is above the high watermark {partition.high_watermark}")
    partition.delete_records(start)
    return start


async def _result(wanted: DeleteRecordsPartition, begun: Begun, deadline: float) -> DeleteRecordsPartitionResult:
    partition, start, code = begun
    low_watermark = NO_OFFSET
    if partition is not None:
        try:
            async with asyncio.timeout_at(deadline):
                await partition.deletion.reach(start)
            low_watermark = partition.deletion.low_watermark
        except TimeoutError:
            code = ErrorCode.request_timed_out
        except PartitionRefused as refused:
            code = code_of(refused)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )
