"""A blocking connection to a peer that sends what the test wants."""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v3.request import HeartbeatRequest

from cordwood.client.blocking import BlockingConnection, connect
from cordwood.client.codec import BadFrameLength, IncompleteResponse, UnknownCorrelationId

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
PATIENCE_S = 30.0


class Ends(NamedTuple):
    """A client's connection, and the socket of its peer."""

    client: BlockingConnection
    peer: socket.socket

    def answer(self, correlation_id: int, code: ErrorCode = ErrorCode.none) -> None:
        self.peer.sendall(struct.pack(">iiih", 10, correlation_id, 0, code))


@pytest.fixture
def ends() -> Iterator[Ends]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connect(f"127.0.0.1:{listener.getsockname()[1]}", PATIENCE_S, "me") as client,
        listener.accept()[0] as peer,
    ):
        yield Ends(client, peer)


def test_responses_come_in_the_order_of_their_requests(ends: Ends) -> None:
    ends.client.send(HEARTBEAT)
    ends.client.send(HEARTBEAT)
    ends.answer(1)
    ends.answer(2, ErrorCode.unknown_member_id)
    assert ends.client.receive().error_code is ErrorCode.none
    assert not ends.client.is_idle
    assert ends.client.receive().error_code is ErrorCode.unknown_member_id
    assert ends.client.is_idle


def test_a_request_and_its_response(ends: Ends) -> None:
    ends.answer(1, ErrorCode.rebalance_in_progress)
    assert ends.client.ask(HEARTBEAT).error_code is ErrorCode.rebalance_in_progress


def test_the_end_of_the_connection_is_an_error(ends: Ends) -> None:
    ends.peer.close()
    with pytest.raises(ConnectionError, match="the broker closed the connection"):
        ends.client.receive()


def test_an_end_inside_a_response_is_an_error(ends: Ends) -> None:
    ends.peer.sendall(b"\x00\x00\x00\x0a\x00")
    ends.peer.close()
    with pytest.raises(IncompleteResponse, match="closed the connection after 5 bytes"):
        ends.client.receive()


def test_silence_is_an_error_after_the_timeout(ends: Ends) -> None:
    ends.client.socket.settimeout(0.01)
    with pytest.raises(TimeoutError):
        ends.client.ask(HEARTBEAT)


def test_the_response_to_another_request_is_an_error(ends: Ends) -> None:
    ends.client.send(HEARTBEAT)
    ends.answer(9)
    with pytest.raises(UnknownCorrelationId, match="to request 9 where request 1 is due"):
        ends.client.receive()


def test_another_protocol_is_an_error(ends: Ends) -> None:
    ends.peer.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(BadFrameLength, match="a response of -1 bytes"):
        ends.client.receive()
