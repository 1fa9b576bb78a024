"""The transport of transaction markers: WriteTxnMarkers requests to the brokers that lead the partitions."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

from cordwood.cluster.kafka.cluster_client import ClusterClient, Unanswered
from cordwood.cluster.transactions.markers import Codes, MarkerRow, Unacknowledged
from cordwood.cluster.transactions.transaction import AddedPartition

ANSWER_S = 35.0
"""Far longer than a broker waits for the commit of markers. A request without an answer may be executed late, and where
all transactions of a producer have one epoch, a late marker would end the next one: so it is not sent again soon.

A broker that fails closes its connections sooner, or loses its partitions, whose markers then go to their new leaders.
"""

_V2 = 2
"""The version of transactions in which each has its own producer epoch (KIP-890)."""


WriteHere = Callable[[Sequence[MarkerRow]], Awaitable[Codes]]
"""Writes markers to partitions of this broker, without a request."""


class MarkerTransport:
    """Writes to this broker itself, and WriteTxnMarkers requests to others over the connections of a client."""

    def __init__(self, client: ClusterClient, write_here: WriteHere) -> None:
        self._client, self._write_here = client, write_here

    async def send(self, broker: int, wanted: Sequence[MarkerRow]) -> Codes:
        """Write markers by a request to a broker. Return the code of each partition. Raises Unacknowledged."""
        if broker == self._client.broker_id:
            return await self._write_here(wanted)
        request = WriteTxnMarkersRequest(markers=tuple(map(_marker, wanted)))
        try:
            response: WriteTxnMarkersResponse = await self._client.ask(broker, request, ANSWER_S)
        except Unanswered as error:
            raise Unacknowledged(str(error)) from error
        codes = {
            (answered.producer_id, topic.name, partition.partition_index): partition.error_code
            for answered in response.markers
            for topic in answered.topics
            for partition in topic.partitions
        }
        return [_codes(row, codes) for row in wanted]


def _marker(row: MarkerRow) -> WritableTxnMarker:
    marker = row.decision.marker
    return WritableTxnMarker(
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
        transaction_result=marker.is_commit,
        topics=_topics(row.partitions),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=_V2 if marker.is_v2 else 0,
    )


def _topics(partitions: Iterable[AddedPartition]) -> tuple[WritableTxnMarkerTopic, ...]:
    indexes: dict[str, list[int]] = {}
    for _, topic, partition in partitions:
        indexes.setdefault(topic, []).append(partition)
    return tuple(WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(some)) for topic, some in indexes.items())


def _codes(row: MarkerRow, codes: Mapping[tuple[int, str, int], ErrorCode]) -> dict[AddedPartition, ErrorCode]:
    """Return the codes of a row's partitions that were answered. A producer is in one row of a request."""
    producer_id = row.decision.marker.producer.producer_id
    found = ((one, codes.get((producer_id, one.topic, one.partition))) for one in row.partitions)
    return {one: code for one, code in found if code is not None}
