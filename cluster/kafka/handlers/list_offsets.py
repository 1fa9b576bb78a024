"""ListOffsets (2): the log start offset, the high watermark, or the offset of a timestamp.

With read_committed, the last stable offset is the end instead of the high watermark (KIP-98). An unknown isolation
level is refused with INVALID_REQUEST; Kafka answers UNKNOWN_SERVER_ERROR.

Version notes: 2 adds the isolation level; 4 the leader epoch (KIP-320); 5 OFFSET_NOT_AVAILABLE in place of
LEADER_NOT_AVAILABLE (KIP-207); 7 the maximum timestamp (KIP-734); 8 the earliest local, 9 the latest tiered and 11 the
earliest pending upload offset.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsTopic
from kio.schema.list_offsets.v11.response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.fetch_request import ISOLATION_LEVELS, READ_COMMITTED
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import DESCRIBE, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.replication.partition import Partition
from cordwood.storage.timestamps import Found, first_at_or_after, latest_by_time

KEY = ApiKey.LIST_OFFSETS
RIGHTS: Rights = (Right(DESCRIBE, TOPIC),)

CONSUMER = -1
"""The replica id of a consumer. Its end of a partition is that of the committed records."""
DEBUGGER = -2
"""The replica id of a debugging consumer. As in Kafka, a follower answers it too, and it sees what is not committed."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NONE = -1
NOT_AVAILABLE_FROM = 5
"""The first version with OFFSET_NOT_AVAILABLE (KIP-207)."""

_FIRST_WITH = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version of each special timestamp."""


async def handle(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    times: Counter[tuple[str, int]] = Counter()
    async for topic, wanted in call.turns.within(_asked(request)):
        times[topic, wanted.partition_index] += 1
    debugs, is_read_committed = request.replica_id == DEBUGGER, request.isolation_level == READ_COMMITTED
    is_known_level = request.isolation_level in ISOLATION_LEVELS
    found: list[Found | ErrorCode] = []
    async for topic, wanted in call.turns.within(_asked(request)):
        if not is_known_level:
            found.append(ErrorCode.invalid_request)
            continue
        # As in Kafka, a partition that the request names several times is invalid.
        is_asked_once = times[topic, wanted.partition_index] == 1
        if is_asked_once or not call.may(DESCRIBE, TOPIC, topic):
            found.append(await _find(topic, wanted, call, debugs=debugs, is_read_committed=is_read_committed))
        else:
            found.append(ErrorCode.invalid_request)
    answers = iter(found)

    def partition_row(wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        return _row(wanted.partition_index, next(answers))

    def topic_row(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        return ListOffsetsTopicResponse(name=topic.name, partitions=rows(partition_row, topic.partitions))

    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=rows(topic_row, request.topics))


def _asked(request: ListOffsetsRequest) -> Iterator[tuple[str, Iterable[ListOffsetsPartition]]]:
    return ((topic.name, topic.partitions) for topic in request.topics)


async def _find(
    topic: str, wanted: ListOffsetsPartition, call: Call, *, debugs: bool, is_read_committed: bool
) -> Found | ErrorCode:
    """Return the requested offset, or an error code: `none` if there is no such offset."""
    timestamp = wanted.timestamp
    if not call.may(DESCRIBE, TOPIC, topic):
        return ErrorCode.topic_authorization_failed
    if timestamp < 0 and (timestamp not in _FIRST_WITH or call.version < _FIRST_WITH[timestamp]):
        return ErrorCode.unsupported_version
    try:
        find = call.services.replicas.readable if debugs else call.services.replicas.led
        partition = find(topic, wanted.partition_index, wanted.current_leader_epoch)
        found = await _look_up(partition, timestamp, call, debugs=debugs, is_read_committed=is_read_committed)
        return found or ErrorCode.none
    except EXPECTED as error:
        return _code_of(error, call.version)


def _row(index: int, found: Found | ErrorCode) -> ListOffsetsPartitionResponse:
    if isinstance(found, ErrorCode):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=found)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _code_of(error: Exception, version: int) -> ErrorCode:
    code = code_of(error)
    if code is ErrorCode.offset_not_available and version < NOT_AVAILABLE_FROM:
        # Older clients retry on this code, as with Kafka. A code that they do not know would be fatal.
        return ErrorCode.leader_not_available
    return code


async def _look_up(
    partition: Partition, timestamp: int, call: Call, *, debugs: bool, is_read_committed: bool
) -> Found | None:
    """Look up an offset among the committed or stable records. A lookup by time decodes batches in a thread."""
    log, decoding, archive = partition.log, call.services.decoding.of(partition.directory), call.services.archive
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        offset = log.log_start if timestamp == EARLIEST else log.local_start
        return Found(offset, NONE, log.epochs.epoch_at(offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _archived(partition, timestamp, call)
    end = partition.log.log_end if debugs else partition.known_high_watermark()
    if is_read_committed and not debugs:
        end = partition.last_stable_offset
    if timestamp == LATEST:
        return Found(end, NONE, partition.leader_epoch)
    if timestamp == MAX_TIMESTAMP:
        latest: Found | None = await decoding.run_steps(latest_by_time(log, end))
        if archive is None or log.local_start == log.log_start:
            return latest
        archived = await archive.latest_by_time(partition, decoding.run_steps)
        return max(filter(None, (archived, latest)), key=lambda found: found.timestamp, default=None)
    if archive is not None and log.local_start > log.log_start:
        archived = await archive.first_at_or_after(partition, timestamp, decoding.run_steps)
        if archived is not None:
            # Only stable records are archived.
            return archived
    found: Found | None = await decoding.run_steps(first_at_or_after(log, timestamp, end))
    return found


def _archived(partition: Partition, timestamp: int, call: Call) -> Found | None:
    """Return the last archived offset, or the first one that is not archived; None as Kafka if there is no archive."""
    archive = call.services.quorum.image.archives.get((partition.topic_id, partition.index))
    if archive is not None and archive.segments:
        last = archive.segments[-1]
        if timestamp == LATEST_TIERED:
            return Found(last.end_offset - 1, NONE, last.leader_epoch)
        return Found(last.end_offset, NONE, partition.log.epochs.epoch_at(last.end_offset))
    if timestamp == LATEST_TIERED or not partition.log.config.is_archived:
        return None
    return Found(partition.log.log_start, NONE, partition.log.epochs.epoch_at(partition.log.log_start))
