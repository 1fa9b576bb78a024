"""WriteTxnMarkers requests of a coordinator, and the answers to them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.kafka.marker_transport import MarkerTransport
from cordwood.cluster.transactions.markers import Codes, Decided, Marker, MarkerRow, Unacknowledged
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.storage.types import ProducerIdAndEpoch

FLIGHTS = [AddedPartition(UUID(int=1), "flights", index) for index in range(3)]
PLANES = AddedPartition(UUID(int=2), "planes", 0)


class ScriptedClient:
    """A client whose broker answers as the test says. `asked` has the requests by broker."""

    broker_id = 1

    def __init__(self, answer: Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse]) -> None:
        self._answer = answer
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []

    async def ask(self, broker: int, request: WriteTxnMarkersRequest, _answer_s: float) -> Any:
        self.asked.append((broker, request))
        return self._answer(request)


def row(producer_id: int, *partitions: AddedPartition, is_commit: bool = True, is_v2: bool = False) -> MarkerRow:
    marker = Marker(ProducerIdAndEpoch(producer_id, 3), is_commit, is_v2, 9)
    return MarkerRow(Decided(None, marker, partitions, lambda: None), list(partitions))


def sent(client: Any, *rows: MarkerRow) -> Codes:
    return asyncio.run(MarkerTransport(client, not_here).send(2, rows))


async def not_here(_: Sequence[MarkerRow]) -> Codes:
    raise AssertionError("another broker is asked")


def answered(*results: tuple[int, str, int, ErrorCode]) -> WriteTxnMarkersResponse:
    """Return a response with a result for each producer id, topic, partition and code."""
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=(
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code),),
                    ),
                ),
            )
            for producer_id, topic, index, code in results
        )
    )


def test_a_request_has_all_markers() -> None:
    client = ScriptedClient(lambda _: answered())
    sent(client, row(7, *FLIGHTS[:2], PLANES), row(8, FLIGHTS[2], is_commit=False, is_v2=True))
    ((broker, request),) = client.asked
    assert broker == 2
    first, second = request.markers
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (7, 3, 9)
    assert (first.transaction_result, first.transaction_version) == (True, 0)
    assert [(topic.name, topic.partition_indexes) for topic in first.topics] == [("flights", (0, 1)), ("planes", (0,))]
    assert (second.producer_id, second.transaction_result, second.transaction_version) == (8, False, 2)


def test_each_partition_has_its_code() -> None:
    none, moved = ErrorCode.none, ErrorCode.not_leader_or_follower
    response = answered((8, "flights", 2, moved), (7, "flights", 0, none), (7, "flights", 1, moved))
    codes = sent(ScriptedClient(lambda _: response), row(7, *FLIGHTS[:2]), row(8, FLIGHTS[2]))
    assert codes == [{FLIGHTS[0]: none, FLIGHTS[1]: moved}, {FLIGHTS[2]: moved}]


def test_what_is_not_in_the_answer_has_no_code() -> None:
    response = answered((7, "flights", 0, ErrorCode.none))
    assert sent(ScriptedClient(lambda _: response), row(7, *FLIGHTS), row(8, PLANES)) == [
        {FLIGHTS[0]: ErrorCode.none},
        {},
    ]


def test_no_answer_acknowledges_nothing() -> None:
    def hang_up(_: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        raise Unanswered("Broker 2 did not answer.")

    with pytest.raises(Unacknowledged, match="Broker 2"):
        sent(ScriptedClient(hang_up), row(7, PLANES))


def test_markers_for_this_broker_need_no_connection() -> None:
    async def here(rows: Sequence[MarkerRow]) -> Codes:
        assert [each.decision.marker.producer.producer_id for each in rows] == [7]
        return [{PLANES: ErrorCode.none}]

    client: Any = ScriptedClient(lambda _: answered())
    assert asyncio.run(MarkerTransport(client, here).send(1, [row(7, PLANES)])) == [{PLANES: ErrorCode.none}]
    assert not client.asked
