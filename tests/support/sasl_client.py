"""A Kafka client of one connection with SASL: every message of an exchange is the test's."""

import base64
import hashlib
import hmac
import socket
import ssl
from contextlib import suppress
from typing import Any

from admin_fixture import message_of, read_response, written
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

TIMEOUT_S = 30.0
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class Refusal(Exception):
    """The broker's answer to an authentication that failed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


class SaslClient:
    """A connection. Requests and responses are of any API and version."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, own_host: str = "") -> None:
        """Connect, with TLS if there is a context. `own_host` is the address of the client's end."""
        own = (own_host, 0) if own_host else None
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, own)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self._number = 0
        self.lifetime_ms = 0
        """The lifetime of the session, which the broker has named; 0 for no end."""

    def ask(self, api: int, version: int, **fields: Any) -> Any:
        """Send a request. Return its response; raises ConnectionError if the broker closes instead."""
        schema = load_request_schema(api, version)
        self._number += 1
        head = api.to_bytes(2, "big") + version.to_bytes(2, "big") + self._number.to_bytes(4, "big") + b"\x00\x04test"
        body = head + (b"\x00" if schema.__flexible__ else b"") + written(message_of(schema, fields))
        self._socket.sendall(len(body).to_bytes(4, "big") + body)
        length = self._read(4)
        return read_response(api, version, length + self._read(int.from_bytes(length, "big")))

    def authenticate(self, mechanism: str, *messages: bytes) -> list[bytes]:
        """Begin an exchange and send messages. Return the broker's. Raises Refusal."""
        answer = self.ask(SASL_HANDSHAKE, 1, mechanism=mechanism)
        if answer.error_code is not ErrorCode.none:
            raise Refusal(answer.error_code, ",".join(answer.mechanisms))
        return [self.step(message) for message in messages]

    def step(self, message: bytes) -> bytes:
        """Send one message of an exchange. Return the broker's. Raises Refusal."""
        answer = self.ask(SASL_AUTHENTICATE, 2, auth_bytes=message)
        if answer.error_code is not ErrorCode.none:
            raise Refusal(answer.error_code, answer.error_message)
        self.lifetime_ms = round(answer.session_lifetime.total_seconds() * 1000)
        return bytes(answer.auth_bytes)

    def bearer(self, token: str) -> None:
        """Authenticate with a bearer token. Raises Refusal."""
        (answer,) = self.authenticate("OAUTHBEARER", f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        if answer:
            self.step(b"\x01")

    def scram(self, user: str, password: str, extensions: str = "", *, hash_name: str = "sha256") -> None:
        """Authenticate with a password. Raises Refusal; AssertionError if the broker does not prove itself."""
        bare = f"n={user},r=nonce{extensions}"
        (first,) = self.authenticate(f"SCRAM-SHA-{hash_name[3:]}", b"n,," + bare.encode())
        nonce, salt, iterations = (part[2:] for part in first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(salt), int(iterations))
        client_key, server_key = (hmac.digest(salted, name, hash_name) for name in (b"Client Key", b"Server Key"))
        final = f"c=biws,r={nonce}"
        signed = f"{bare},{first.decode()},{final}".encode()
        signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        last = self.step(f"{final},p={base64.b64encode(proof).decode()}".encode())
        assert last == b"v=" + base64.b64encode(hmac.digest(server_key, signed, hash_name))

    def rest_after(self, content: bytes) -> bytes:
        """Send any bytes. Return all that comes until the broker ends the connection."""
        received = b""
        with suppress(ConnectionError, ssl.SSLError):
            self._socket.sendall(content)
            while piece := self._socket.recv(1 << 16):
                received += piece
        return received

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "SaslClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            piece = self._socket.recv(count - len(content))
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            content += piece
        return content
