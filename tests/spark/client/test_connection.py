"""Connections of the Spark client: refusal of peers that are no broker, and trial of every bootstrap address."""

import socket
import threading

import pytest
from scripted_broker import ScriptedBroker

from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.connection import BrokerConnection, ConnectionFailed
from cordwood.spark.client.settings import Address, ClientSettings, addresses
from cordwood.spark.errors import RequestRefused, Unavailable


def stranger(says: bytes) -> Address:
    """Listen for one connection, answer its request with `says`, and close. Return the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(says)

    threading.Thread(target=answer, daemon=True).start()
    return Address("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    ("says", "meaning"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not use Kafka's protocol"),
        (b"", "closed the connection"),
        (b"\x00\x00\x00\x20\x00", "closed the connection"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x09", "a response to request 9 where request 1 is due"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01\x00", "malformed response"),
    ],
)
def test_who_is_no_broker_is_trouble_and_not_a_crash(says: bytes, meaning: str) -> None:
    address = stranger(says)
    with pytest.raises(ConnectionFailed, match=meaning):
        BrokerConnection(address, ClientSettings((address,), request_timeout_ms=2000))


def test_a_broker_of_long_ago_is_refused() -> None:
    with ScriptedBroker() as broker:
        broker.served[1] = (0, 10)
        with pytest.raises(RequestRefused, match=r"does not serve FetchRequest version 11.* Kafka broker since 2\.3"):
            ClusterReader(broker.settings()).topics()


def test_no_reachable_broker_ends_with_every_address_and_its_error() -> None:
    settings = ClientSettings((Address("127.0.0.1", 1), Address("127.0.0.1", 2)), retry_timeout_ms=100)
    with pytest.raises(
        Unavailable,
        match=r"list the topics within 0\.1 s: 127\.0\.0\.1:1 does not accept .* 127\.0\.0\.1:2 does not accept",
    ):
        ClusterReader(settings).topics()


def test_one_that_answers_is_enough() -> None:
    with ScriptedBroker() as broker:
        settings = ClientSettings((Address("127.0.0.1", 1), broker.address))
        assert ClusterReader(settings).topics() == ["flights"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, found: list[tuple[str, int]]) -> None:
    assert list(addresses(text)) == found
    assert addresses(",".join(map(str, addresses(text)))) == addresses(text)


@pytest.mark.parametrize("text", ["", " , ", "a:", ":1", "a:b", "a:0", "a:70000", "::1", "a b:1"])
def test_wrong_addresses_are_reported(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        addresses(text)
