"""WriteTxnMarkers (27): appends the markers that end transactions to partitions that this broker leads (KIP-98).

The transaction coordinator sends it, or an administrator who aborts a hanging transaction (KIP-664). All markers of a
request are appended before the first is awaited: a marker counts once every in-sync replica has it.

Version notes: 2 adds the transaction version. In version 2 of transactions each marker has a new epoch (KIP-890).
"""

import asyncio
from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WritableTxnMarkerTopic
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.replication.leader_role import LeaderRole
from cordwood.replication.refusal import PartitionRefused
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.types import ProducerIdAndEpoch

KEY, VERSIONS = ApiKey.WRITE_TXN_MARKERS, range(1, 3)

WITH_AN_EPOCH_EACH = 2
"""First transaction version in which the coordinator raises the epoch for each marker."""
TIMEOUT_S = 30.0
"""How long a marker is awaited, as Kafka's request.timeout.ms."""

Place = tuple[WritableTxnMarker, WritableTxnMarkerTopic, int]
"""A marker, and the topic and partition where it is to be appended."""
Appended = tuple[LeaderRole, int]
"""The leader that has appended a marker, and the offset after the marker."""


async def handle(request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    appended = [_append(place, call) async for place in call.turns.each(_places(request))]
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    ends = zip(_places(request), appended, strict=True)
    codes = iter([await _end(place, outcome, deadline, call) async for place, outcome in call.turns.each(ends)])

    def partition_row(index: int) -> WritableTxnMarkerPartitionResult:
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))

    def topic_row(topic: WritableTxnMarkerTopic) -> WritableTxnMarkerTopicResult:
        return WritableTxnMarkerTopicResult(name=topic.name, partitions=rows(partition_row, topic.partition_indexes))

    def marker_row(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=rows(topic_row, marker.topics))

    return WriteTxnMarkersResponse(markers=rows(marker_row, request.markers))


def _places(request: WriteTxnMarkersRequest) -> Iterator[Place]:
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield marker, topic, index


def _append(place: Place, call: Call) -> Appended | ErrorCode:
    marker, topic, index = place
    try:
        leader = call.services.replicas.led(topic.name, index).leader
        appended = leader.append_marker(
            ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch),
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            call.services.wall_clock(),
            is_v2=marker.transaction_version >= WITH_AN_EPOCH_EACH,
        )
    except EXPECTED as error:
        return code_of(error)
    return leader, appended.end_offset


async def _end(place: Place, outcome: Appended | ErrorCode, deadline: float, call: Call) -> ErrorCode:
    """Wait until a marker is committed, and return its code. The offsets that a transaction committed count then."""
    if isinstance(outcome, ErrorCode):
        return outcome
    leader, end = outcome
    try:
        async with asyncio.timeout_at(deadline):
            await leader.committed(end)
    except TimeoutError:
        return ErrorCode.request_timed_out
    except PartitionRefused as refused:
        return code_of(refused)
    marker, topic, index = place
    if topic.name == CONSUMER_OFFSETS:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        call.services.groups.transaction_ended(index, producer, marker.transaction_result)
    return ErrorCode.none
