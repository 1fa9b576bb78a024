"""DeleteRecords (21): advances the log start offset; records below it are unreadable immediately (KIP-107).

The response is sent once every in-sync replica has the new log start offset on disk, so that neither a restart nor a
failover brings records back. All partitions of a request begin before the first is awaited. Internal topics are refused
with INVALID_TOPIC_EXCEPTION.
"""

import asyncio
from array import array
from collections.abc import Iterator

import structlog
from kio.schema.delete_records.v2 import DeleteRecordsRequest, DeleteRecordsResponse
from kio.schema.delete_records.v2.request import DeleteRecordsPartition
from kio.schema.delete_records.v2.response import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import DELETE, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import generated, rows
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage.errors import InvalidRecord, OffsetOutOfRange
from cordwood.storage.types import NO_OFFSET

KEY = ApiKey.DELETE_RECORDS
RIGHTS: Rights = (Right(DELETE, TOPIC),)

HIGH_WATERMARK = -1
"""The requested offset that stands for the high watermark: delete all committed records."""
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 1.0, 300.0
"""Bounds of the request's timeout. A client that asks for none does not wait for followers in Kafka, and gets an answer
there if it needs none; here even a single replica has to flush its log start offset."""

_events = structlog.get_logger("records")


class Pinned(Exception):
    """A cut needs some of the records to delete."""


class Deletions:
    """The partitions of a request in order, in columns: 100,000 objects would take many times the request's size."""

    __slots__ = ("codes", "indexes", "leaders", "offsets")

    def __init__(self) -> None:
        self.indexes = array("i")
        self.leaders: list[LeaderRole | None] = []
        """None where the deletion is refused."""
        self.offsets = array("q")
        """The new log start offset; once that is reached, the low watermark."""
        self.codes: list[ErrorCode] = []

    def begin(self, topic: str, wanted: DeleteRecordsPartition, call: Call) -> None:
        leader, code = None, ErrorCode.none
        start: int = NO_OFFSET
        try:
            call.require(DELETE, TOPIC, topic)
            if topic in INTERNAL_TOPICS:
                # Of any cleanup.policy, as in Kafka: they have the state of groups and transactions.
                raise Refused(ErrorCode.invalid_topic_exception)
            role = call.services.replicas.led(topic, wanted.partition_index).leader
            start = _delete(role, wanted.offset)
            leader = role
        except InvalidRecord:
            code = ErrorCode.policy_violation
        except Pinned:
            code = ErrorCode.policy_violation
            _log_refusal(topic, wanted.partition_index, call)
        except Refused as refusal:
            code = refusal.code
        except EXPECTED as error:
            code = code_of(error)
        self.indexes.append(wanted.partition_index)
        self.leaders.append(leader)
        self.offsets.append(start)
        self.codes.append(code)

    async def end(self, number: int, deadline: float) -> None:
        """Wait until a partition's deletion is on every in-sync replica."""
        leader = self.leaders[number]
        if leader is None:
            return
        start, self.offsets[number] = self.offsets[number], NO_OFFSET
        try:
            async with asyncio.timeout_at(deadline):
                await leader.records_deleted(start)
            self.offsets[number] = leader.low_watermark
        except TimeoutError:
            self.codes[number] = ErrorCode.request_timed_out
        except PartitionRefused as refused:
            self.codes[number] = code_of(refused)

    def row(self, number: int) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=self.indexes[number], low_watermark=self.offsets[number], error_code=self.codes[number]
        )


async def handle(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    timeout_s = min(max(request.timeout.total_seconds(), TIMEOUT_MIN_S), TIMEOUT_MAX_S)
    deadline = asyncio.get_running_loop().time() + timeout_s
    deletions = Deletions()
    async for name, wanted in call.turns.within((topic.name, topic.partitions) for topic in request.topics):
        deletions.begin(name, wanted, call)
    async for number in call.turns.each(range(len(deletions.codes))):
        await deletions.end(number, deadline)

    def topic_rows() -> Iterator[DeleteRecordsTopicResult]:
        end = 0
        for topic in request.topics:
            begin, end = end, end + len(topic.partitions)
            yield DeleteRecordsTopicResult(name=topic.name, partitions=rows(deletions.row, range(begin, end)))

    return DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=generated(topic_rows, len(request.topics)))


def _delete(leader: LeaderRole, offset: int) -> int:
    if leader.log.config.compacted and not leader.log.config.deletable:
        raise InvalidRecord("records of a topic with cleanup.policy=compact cannot be deleted by offset")
    if not leader.view.has_enough_replicas:
        # An out-of-sync replica that is elected later would bring the records back.
        raise PartitionRefused(Refusal.NOT_ENOUGH_REPLICAS)
    high_watermark = leader.partition.high_watermark
    start = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= high_watermark:
        raise OffsetOutOfRange(f"offset {start} is above the high watermark {high_watermark}")
    if start > max(leader.log.pinned.start, leader.log.log_start):
        raise Pinned
    leader.delete_records(start)
    return start


def _log_refusal(topic: str, index: int, call: Call) -> None:
    """Log which cuts forbid a deletion: the response has an error code for it, and no room for a sentence."""
    image = call.services.quorum.image
    topic_id = image.topics_by_name[topic].id if topic in image.topics_by_name else None
    names = [cut.name for cut in image.cuts.values() if cut.pins(topic_id, index)]
    reason = f"Records that the cut {', '.join(names)} pins cannot be deleted: drop the cut first."
    _events.warning("records.not_deleted", topic=topic, partition=index, reason=reason)
