"""WriteTxnMarkers (27): appends the markers that end transactions to partitions that this broker leads (KIP-98).

The transaction coordinator sends it, or an administrator who aborts a hanging transaction (KIP-664). All markers of a
request are appended before the first is awaited: a marker counts once every in-sync replica has it.

Version notes: 2 adds the transaction version. In version 2 of transactions each marker has a new epoch (KIP-890).
"""

import asyncio
import math
from collections.abc import AsyncIterator

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WritableTxnMarkerTopic
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)

from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.replication.refusal import PartitionRefused
from cordwood.replication.waiters import FutureWaiter
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.types import ProducerIdAndEpoch

KEY, VERSIONS = ApiKey.WRITE_TXN_MARKERS, range(1, 3)

WITH_AN_EPOCH_EACH = 2
"""First transaction version in which the coordinator raises the epoch for each marker."""
TIMEOUT_S = 30.0
"""How long a marker is awaited, as Kafka's request.timeout.ms."""

Place = tuple[WritableTxnMarker, WritableTxnMarkerTopic, int]
"""A marker, and the topic and partition where it is to be appended."""
Commit = asyncio.Future[None]
"""The commit of an appended marker."""


async def handle(request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    appended = [_append(place, call) async for place in _places(request, call)]
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    codes = iter([await _committed(outcome, deadline) async for outcome in call.turns.each(appended)])

    def partition_row(index: int) -> WritableTxnMarkerPartitionResult:
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))

    def topic_row(topic: WritableTxnMarkerTopic) -> WritableTxnMarkerTopicResult:
        return WritableTxnMarkerTopicResult(name=topic.name, partitions=rows(partition_row, topic.partition_indexes))

    def marker_row(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=rows(topic_row, marker.topics))

    return WriteTxnMarkersResponse(markers=rows(marker_row, request.markers))


async def _places(request: WriteTxnMarkersRequest, call: Call) -> AsyncIterator[Place]:
    async for marker in call.turns.each(request.markers):
        async for topic, index in call.turns.within((topic, topic.partition_indexes) for topic in marker.topics):
            yield marker, topic, index


class EndedInGroups:
    """The end of a transaction for its group offsets in one partition, once the marker is committed.

    If the leadership ends before, the next coordinator of the groups finds the marker in the log.
    """

    deadline = math.inf

    def __init__(self, groups: GroupCoordinator, partition: int, producer: ProducerIdAndEpoch, is_commit: bool) -> None:
        self._groups, self._partition, self._producer, self._is_commit = groups, partition, producer, is_commit

    def reached(self) -> None:
        self._groups.transaction_ended(self._partition, self._producer, self._is_commit)

    def failed(self, reason: Exception) -> None: ...


def _append(place: Place, call: Call) -> Commit | ErrorCode:
    """Append a marker. Its commit is awaited from here on: a leadership that has ended completes no waiter any more."""
    marker, topic, index = place
    producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
    if min(producer) < 0:
        return ErrorCode.invalid_request
    try:
        leader = call.services.replicas.led(topic.name, index).leader
        appended = leader.append_marker(
            producer,
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            call.services.wall_clock(),
            is_v2=marker.transaction_version >= WITH_AN_EPOCH_EACH,
        )
    except EXPECTED as error:
        return code_of(error)
    if topic.name == CONSUMER_OFFSETS:
        ended = EndedInGroups(call.services.groups, index, producer, marker.transaction_result)
        if not leader.when_committed(appended.end_offset, ended):
            ended.reached()
    waiter = FutureWaiter()
    return waiter.future if leader.when_committed(appended.end_offset, waiter) else ErrorCode.none


async def _committed(outcome: Commit | ErrorCode, deadline: float) -> ErrorCode:
    """Wait until a marker is committed, and return its code."""
    if isinstance(outcome, ErrorCode):
        return outcome
    try:
        async with asyncio.timeout_at(deadline):
            await outcome
    except TimeoutError:
        return ErrorCode.request_timed_out
    except PartitionRefused as refused:
        return code_of(refused)
    return ErrorCode.none
