"""The newest connections of version 1 producers: which requests were delayed, and for how long that is known."""

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.transactions.connections import NewestConnections
from cordwood.storage.types import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(7, 0)


def is_refused(connections: NewestConnections, connection: int, producer: ProducerIdAndEpoch = PRODUCER) -> bool:
    try:
        connections.note(producer, connection)
    except Refused as refusal:
        return refusal.code is ErrorCode.invalid_txn_state
    return False


def test_a_request_on_an_older_connection_is_refused() -> None:
    connections = NewestConnections()
    assert [number for number in (4, 5, 4, 5, 6, 5, 4) if is_refused(connections, number)] == [4, 5, 4]


@pytest.mark.parametrize("producer", [ProducerIdAndEpoch(7, 1), ProducerIdAndEpoch(8, 0)])
def test_a_new_producer_may_use_any_connection(producer: ProducerIdAndEpoch) -> None:
    connections = NewestConnections()
    connections.note(PRODUCER, 9)
    assert not is_refused(connections, 4, producer)
    assert is_refused(connections, 4)


def test_a_request_without_a_connection_is_not_refused() -> None:
    connections = NewestConnections()
    connections.note(PRODUCER, 9)
    assert not is_refused(connections, 0)
    assert is_refused(connections, 4)


def test_a_producer_is_forgotten_after_the_requests_of_many_others() -> None:
    connections = NewestConnections(producers_max=10)
    connections.note(PRODUCER, 9)
    for producer_id in range(100, 110):
        connections.note(ProducerIdAndEpoch(producer_id, 0), 10)
    assert is_refused(connections, 8)
    for producer_id in range(110, 120):
        connections.note(ProducerIdAndEpoch(producer_id, 0), 10)
    assert not is_refused(connections, 8)


def test_a_producer_that_sends_requests_is_not_forgotten() -> None:
    connections = NewestConnections(producers_max=10)
    for producer_id in range(100, 200):
        connections.note(ProducerIdAndEpoch(producer_id, 0), 10)
        connections.note(PRODUCER, 9)
    assert is_refused(connections, 8)
    assert len(connections._recent) + len(connections._former) <= 20
