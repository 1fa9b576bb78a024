"""TLS listeners of a broker: limits of connections, clients of other protocols, and certificates that change."""

import os
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from tls_fixture import Stores

LIMIT = 80


class TlsBroker:
    """A broker with a plain listener, and one with TLS whose clients have certificates of `stores`."""

    def __init__(self, directory: Path) -> None:
        self.stores = Stores(directory)
        self.port = free_port()
        self.broker = RunningBroker(directory / "data", max_connections=str(LIMIT))
        self.broker.settings |= {
            "listeners": f"PLAINTEXT://{self.broker.bootstrap},MUTUAL://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/",
            "ssl.keystore.location": str(self.stores.keystore),
            "ssl.truststore.location": str(self.stores.truststore),
        }
        self.broker.start()

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def client(self, name: str = "alice") -> ssl.SSLSocket:
        certificate = self.stores.ca.issue_cert("a@example.org", common_name=name, organization_name="Acme")
        return self.stores.client_context(certificate).wrap_socket(self.tcp(), server_hostname="localhost")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.broker.stop()


def api_versions(connected: socket.socket) -> int:
    """Return the error code of an ApiVersions response. Raises ConnectionError."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    connected.sendall(struct.pack(">i", len(request)) + request)
    head = b""
    while len(head) < 10:
        head += connected.recv(10 - len(head)) or _closed()
    size, correlation, code = struct.unpack(">iih", head)
    assert correlation == 7
    while size > 6:
        size -= len(connected.recv(size - 6) or _closed())
    return int(code)


def _closed() -> bytes:
    raise ConnectionError("the broker has closed the connection")


def test_a_client_with_a_certificate_is_served(tls: TlsBroker) -> None:
    with tls.client() as client:
        assert api_versions(client) == 0


def test_a_certificate_that_no_rule_names_is_refused(tls: TlsBroker) -> None:
    with pytest.raises(OSError), tls.client("Bob7") as client:  # noqa: PT011
        api_versions(client)
    wait_until(lambda: "no rule of ssl.principal.mapping.rules matches" in tls.broker.output, 30, "the line")


def test_idle_handshakes_take_no_place_from_clients(tls: TlsBroker) -> None:
    with tls.client() as before:
        assert api_versions(before) == 0
        idle = [tls.tcp() for _ in range(3 * LIMIT)]
        with tls.client() as during:
            assert api_versions(during) == 0
            assert api_versions(before) == 0
        refused = "max.connections is 80: a TLS handshake ends"
        wait_until(lambda: refused in tls.broker.output, 30, "a refused handshake")
        for connected in idle:
            connected.close()


def test_a_new_certificate_and_a_faulty_one(tls: TlsBroker) -> None:
    def presented() -> bytes:
        with tls.client() as client:
            assert api_versions(client) == 0
            return client.getpeercert(binary_form=True) or b""

    with tls.client() as before:
        first = presented()
        good = tls.stores.keystore.read_bytes()
        tls.stores.renew()
        os.kill(tls.broker.pid, signal.SIGHUP)
        wait_until(lambda: presented() != first, 60, "the new certificate")
        tls.stores.keystore.write_bytes(good[:500])
        os.kill(tls.broker.pid, signal.SIGHUP)
        wait_until(lambda: "tls.not_reloaded" in tls.broker.output, 60, "the refusal of half a file")
        assert presented() != first
        assert api_versions(before) == 0
        tls.stores.keystore.write_bytes(good)
        wait_until(lambda: presented() == first, 60, "the former certificate")
