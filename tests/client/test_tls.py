"""Blocking connections with TLS and SASL: to servers that are right, false, or of another protocol."""

import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from plain_broker import AUTHENTICATE, HANDSHAKE, PlainBroker
from tls_peer import Certificates, another_ca, serving

from cordwood.client.bearer import BearerSource
from cordwood.client.blocking import connect
from cordwood.client.credentials import Mechanism, NotAuthenticated, SaslCredentials
from cordwood.client.security import ClientSecurity, client_security
from cordwood.client.tls import ClientTlsSettings, TlsFailed, WrongSetting

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "localhost")


def ask_once(port: int, security: ClientSecurity, host: str = "localhost") -> None:
    with connect(f"{host}:{port}", PATIENCE_S, "me", security) as connection:
        connection.ask(HEARTBEAT)


def with_client_certificate(made: Certificates) -> dict[str, ClientTlsSettings]:
    """Return the ways to give the same certificate."""
    ca, certificate, key = made.ca_file.read_text(), made.certificate_file.read_bytes(), made.key_file.read_bytes()
    loaded = load_pem_private_key(key, None)
    store = made.ca_file.with_name("store.p12")
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"me", loaded, load_pem_x509_certificate(certificate), None, BestAvailableEncryption(b"pw")
        )
    )
    together = made.ca_file.with_name("both.pem")
    together.write_bytes(key + certificate)
    return {
        "files": ClientTlsSettings(
            str(made.ca_file), certificate_location=str(made.certificate_file), key_location=str(made.key_file)
        ),
        "texts": ClientTlsSettings(ca_pem=ca, certificate_pem=certificate.decode(), key_pem=key.decode()),
        "one file": ClientTlsSettings(ca_pem=ca, certificate_location=str(together)),
        "keystore": ClientTlsSettings(ca_pem=ca, keystore_location=str(store), keystore_password="pw"),
    }


def test_a_trusted_server(made: Certificates) -> None:
    with serving(PlainBroker(), made.context()) as port:
        ask_once(port, ClientSecurity(ClientTlsSettings(str(made.ca_file))))
        ask_once(port, ClientSecurity(ClientTlsSettings(str(made.ca_file), checks_host_name=False)), "127.0.0.1")
        ask_once(port, ClientSecurity(ClientTlsSettings(checks_certificate=False)), "127.0.0.1")


@pytest.mark.parametrize("way", ["files", "texts", "one file", "keystore"])
def test_a_client_certificate(made: Certificates, way: str) -> None:
    with serving(PlainBroker(), made.context(ssl.CERT_REQUIRED)) as port:
        ask_once(port, ClientSecurity(with_client_certificate(made)[way]))


def test_a_server_of_another_ca_is_refused(made: Certificates) -> None:
    with (
        serving(PlainBroker(), made.context()) as port,
        pytest.raises(TlsFailed, match=r"ssl\.ca\.location must have the CA"),
    ):
        ask_once(port, ClientSecurity(ClientTlsSettings(ca_pem=another_ca())))


def test_the_systems_cas_are_the_default(made: Certificates) -> None:
    with serving(PlainBroker(), made.context()) as port, pytest.raises(TlsFailed, match="cannot be trusted"):
        ask_once(port, ClientSecurity(ClientTlsSettings()))


def test_a_certificate_for_another_name_is_refused(made: Certificates) -> None:
    with (
        serving(PlainBroker(), made.context()) as port,
        pytest.raises(TlsFailed, match="connect by a name of the certificate"),
    ):
        ask_once(port, ClientSecurity(ClientTlsSettings(str(made.ca_file))), "127.0.0.1")


def test_tls_to_a_listener_without_it(made: Certificates) -> None:
    def serve(connected: socket.socket) -> None:
        connected.sendall(b"\0\0\0\x08no TLS here")
        connected.recv(1)

    with serving(serve) as port, pytest.raises(TlsFailed, match=r"does not use TLS: set security\.protocol"):
        ask_once(port, ClientSecurity(ClientTlsSettings(str(made.ca_file))))


def test_a_file_that_is_no_certificate_is_named(made: Certificates, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(WrongSetting, match=r"ssl\.ca\.location: .*no\.pem cannot be used"):
        ClientTlsSettings(str(tmp_path / "no.pem")).context()
    with pytest.raises(WrongSetting, match=r"ssl\.ca\.location: .*missing\.pem cannot be used \(no such file"):
        ClientTlsSettings(str(tmp_path / "missing.pem")).context()
    ca, key = made.ca_file, made.key_file
    with pytest.raises(
        WrongSetting, match=r"ssl\.certificate\.location.* \(the key is not the one of the certificate\)"
    ):
        ClientTlsSettings(str(ca), certificate_location=str(ca), key_location=str(key)).context()


def test_a_session_is_renewed_before_it_ends() -> None:
    server = PlainBroker(lifetime_ms=1)
    security = ClientSecurity(sasl=SaslCredentials(Mechanism.PLAIN, "alice", "p"))
    with serving(server) as port, connect(f"localhost:{port}", PATIENCE_S, "me", security) as connection:
        for _ in range(2):
            end_of_session = time.monotonic() + 0.001
            while time.monotonic() < end_of_session:
                pass
            connection.send(HEARTBEAT)
        assert connection.receive().error_code == 0
        assert not connection.is_idle
        assert connection.receive().error_code == 0
        assert connection.is_idle
    authentication = [HANDSHAKE, AUTHENTICATE]
    assert server.seen == [*authentication, *authentication, 12, *authentication, 12]


def test_without_a_lifetime_a_client_authenticates_once() -> None:
    server = PlainBroker()
    security = ClientSecurity(sasl=SaslCredentials(Mechanism.PLAIN, "alice", "p"))
    with serving(server) as port:
        ask_once(port, security)
    assert server.seen == [HANDSHAKE, AUTHENTICATE, 12]


class TokenEndpoint(http.server.BaseHTTPRequestHandler):
    """A token endpoint that knows one client."""

    requests: ClassVar[list[tuple[str, bytes]]] = []
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.headers["Authorization"], body))
        answer = json.dumps({"access_token": "a.b.c", "expires_in": 3600}).encode()
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://localhost:1/elsewhere")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def token_endpoint() -> Iterator[tuple[type[TokenEndpoint], str]]:
    class Endpoint(TokenEndpoint):
        requests: ClassVar[list[tuple[str, bytes]]] = []

    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield Endpoint, f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def test_a_token_of_a_provider_is_kept(token_endpoint: tuple[type[TokenEndpoint], str]) -> None:
    endpoint, url = token_endpoint
    source = BearerSource(endpoint=url, client_id="me", client_secret="s3:cret", scope="kafka")
    assert [source.fetch(PATIENCE_S), source.fetch(PATIENCE_S)] == ["a.b.c", "a.b.c"]
    assert endpoint.requests == [("Basic bWU6czMlM0FjcmV0", b"grant_type=client_credentials&scope=kafka")]


@pytest.mark.parametrize("status", [302, 401])
def test_a_provider_that_refuses(token_endpoint: tuple[type[TokenEndpoint], str], status: int) -> None:
    endpoint, url = token_endpoint
    endpoint.status = status
    security = client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "s3cret",
        }
    )
    with pytest.raises(NotAuthenticated) as failed:
        security.credentials()
    assert "s3cret" not in str(failed.value)
    assert len(endpoint.requests) == 1
