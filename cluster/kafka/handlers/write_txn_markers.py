"""WriteTxnMarkers (27): appends the markers that end transactions to partitions that this broker leads (KIP-98).

The transaction coordinator sends it, or an administrator who aborts a hanging transaction (KIP-664). All markers of a
request are appended before the first one is awaited. A marker counts once it is committed.

Version notes: 2 adds the transaction version. In version 2 of transactions each marker has a new epoch (KIP-890).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WritableTxnMarkerTopic
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call, Services
from cordwood.cluster.kafka.refusals import EXPECTED, code_of
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.cluster.transactions.markers import Codes, Marker, MarkerRow
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.storage.control import EndTransactionMarker
from cordwood.storage.types import ProducerIdAndEpoch

KEY = ApiKey.WRITE_TXN_MARKERS
RIGHTS: Rights = (
    Right(CLUSTER_ACTION, CLUSTER, "or ALTER on the cluster"),
    Right(ALTER, CLUSTER, "or CLUSTER_ACTION on the cluster"),
)

ITEMS_MAX = 10_000
"""Markers of one group commit are answered at once. A coordinator sends those of 1,000 partitions in one request."""
WITH_AN_EPOCH_EACH = 2
"""First transaction version in which the coordinator raises the epoch for each marker."""
TIMEOUT_S = 2.0
"""How long a marker is awaited. One slow partition holds back the answer for all markers of a request. The coordinator
sends its marker again, which changes nothing if the first one is committed after all."""
LATE_S = 30.0
"""How long after its append a marker's commit still counts for group offsets."""


class MarkerOutcome:
    """The outcome of one marker: it is committed, refused, or not committed in time.

    `committed` is called, if it is given, once the marker is committed, also after the request's answer; it calls its
    argument when the outcome may be answered. A leadership that ends before leaves it to the next leader.
    """

    __slots__ = ("_committed", "_request", "code", "deadline")

    spans_epochs = False

    def __init__(
        self, request: "PendingMarkers", deadline: float, committed: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self._request, self.deadline, self._committed = request, deadline, committed
        self.code = ErrorCode.request_timed_out

    def reached(self) -> None:
        done = partial(self.refused, ErrorCode.none)
        if self._committed is None:
            done()
        else:
            self._committed(done)

    def failed(self, reason: Exception) -> None:
        self.refused(code_of(reason))

    def refused(self, code: ErrorCode) -> None:
        self.code = code
        self._request.one_done()


class PendingMarkers:
    """The markers of one request."""

    def __init__(self, services: Services) -> None:
        self._services, self._now_ms = services, services.wall_clock()
        self._loop = asyncio.get_running_loop()
        self._left, self._all = 1, self._loop.create_future()
        self._began = self._loop.time()

    def append(self, topic: str, index: int, marker: Marker) -> MarkerOutcome:
        """Append a marker to a partition."""
        committed = partial(self._ended_in_groups, index, marker) if topic == CONSUMER_OFFSETS else None
        outcome = MarkerOutcome(self, self._began + LATE_S, committed)
        self._left += 1
        if min(marker.producer) < 0:
            outcome.refused(ErrorCode.invalid_request)
            return outcome
        try:
            leader = self._services.replicas.led(topic, index).leader
            end = EndTransactionMarker(marker.is_commit, marker.coordinator_epoch)
            appended = leader.append_marker(marker.producer, end, self._now_ms, is_v2=marker.is_v2)
        except EXPECTED as error:
            outcome.failed(error)
        else:
            if not leader.when_committed(appended.end_offset, outcome):
                outcome.reached()
        return outcome

    async def done(self) -> None:
        """Wait until all markers are committed or refused, or the time is up."""
        self.one_done()
        try:
            async with asyncio.timeout_at(self._began + TIMEOUT_S):
                await self._all
        except TimeoutError:
            pass

    def one_done(self) -> None:
        self._left -= 1
        if not self._left and not self._all.done():
            self._all.set_result(None)

    def _ended_in_groups(self, partition: int, marker: Marker, applied: Callable[[], None]) -> None:
        self._services.groups.transaction_ended(partition, marker.producer, marker.is_commit, applied)


async def handle(request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    outcomes: list[MarkerOutcome] = []
    may_write = call.may_see(ALTER, CLUSTER) or call.may(CLUSTER_ACTION, CLUSTER)
    if may_write:
        pending = PendingMarkers(call.services)
        outcomes = [pending.append(topic.name, index, marker) async for marker, topic, index in _places(request, call)]
        await pending.done()
    left = iter(outcomes)

    def partition_row(index: int) -> WritableTxnMarkerPartitionResult:
        code = next(left).code if may_write else ErrorCode.cluster_authorization_failed
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

    def topic_row(topic: WritableTxnMarkerTopic) -> WritableTxnMarkerTopicResult:
        return WritableTxnMarkerTopicResult(name=topic.name, partitions=rows(partition_row, topic.partition_indexes))

    def marker_row(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=rows(topic_row, marker.topics))

    return WriteTxnMarkersResponse(markers=rows(marker_row, request.markers))


async def write_here(wanted: Sequence[MarkerRow], services: Services) -> Codes:
    """Write the markers of this broker's own coordinator, as `handle` does. Return the code of each partition."""
    pending = PendingMarkers(services)
    outcomes: list[dict[AddedPartition, MarkerOutcome]] = [{} for _ in wanted]
    turns = services.turns.within((number, row.partitions) for number, row in enumerate(wanted))
    async for number, partition in turns:
        marker = wanted[number].decision.marker
        outcomes[number][partition] = pending.append(partition.topic, partition.partition, marker)
    await pending.done()
    return [{partition: outcome.code for partition, outcome in row.items()} for row in outcomes]


async def _places(
    request: WriteTxnMarkersRequest, call: Call
) -> AsyncIterator[tuple[Marker, WritableTxnMarkerTopic, int]]:
    async for written in call.turns.each(request.markers):
        producer = ProducerIdAndEpoch(written.producer_id, written.producer_epoch)
        is_v2 = written.transaction_version >= WITH_AN_EPOCH_EACH
        marker = Marker(producer, written.transaction_result, is_v2, written.coordinator_epoch)
        async for topic, index in call.turns.within((topic, topic.partition_indexes) for topic in written.topics):
            yield marker, topic, index
