"""A broker's side of SASL PLAIN for clients' tests, on blocking sockets: it takes any password."""

import socket
import struct

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18
SERVED = ((1, 4, 11), (2, 1, 5), (3, 0, 8))
"""API keys with their first and last versions."""


class PlainBroker:
    """Answers the requests of a connection. Any API but those of SASL and ApiVersions is answered as a Heartbeat."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.seen: list[int] = []
        """The API keys of all requests, in their order."""
        self.users: list[str] = []
        self._lifetime_ms = lifetime_ms

    def __call__(self, connected: socket.socket) -> None:
        """Serve one connection to its end."""
        with connected.makefile("rb") as file:
            while head := file.read(12):
                size, key, _, correlation_id = struct.unpack(">ihhi", head)
                rest = file.read(size - 8)
                self.seen.append(key)
                body = struct.pack(">i", correlation_id) + self._body(key, rest)
                connected.sendall(struct.pack(">i", len(body)) + body)

    def _body(self, key: int, rest: bytes) -> bytes:
        if key == HANDSHAKE:
            return struct.pack(">hi", 0, 0)
        if key == AUTHENTICATE:
            self.users.append(rest.split(b"\0")[-2].decode())
            return struct.pack(">hhiq", 0, -1, 0, self._lifetime_ms)
        if key == API_VERSIONS:
            return struct.pack(">hi", 0, len(SERVED)) + b"".join(struct.pack(">hhh", *each) for each in SERVED)
        return struct.pack(">ih", 0, 0)
