"""An intruder's connection to a closed broker, with or without TLS, and all received bytes."""

import random
import socket
import ssl
import time
from typing import Self

from cordwood.chaos.live.flood.raw_connection import RESET_ON_CLOSE
from cordwood.chaos.live.intruders.stage import HOST, MARKER

CONNECT_S = 20.0
ANSWER_S, QUIET_S = 5.0, 0.25
RECEIVE_BYTES = 1 << 16
SASL_APIS = (17, 18, 36)
"""SaslHandshake, ApiVersions, SaslAuthenticate: all that a client may use before it is authenticated."""
HEAD_BYTES = 8
"""API key, version and correlation id."""
CORRELATION_IDS = 1 << 30
"""The correlation ids of all requests are below."""


class BrokerClosed(Exception):
    """The broker has ended the connection."""


class IntruderConnection:
    """A connection from one of many addresses: a broker limits the failures of each."""

    def __init__(self, rng: random.Random, port: int, context: ssl.SSLContext | None = None) -> None:
        """Raises BrokerClosed if the TLS handshake fails, OSError if the broker takes no connections."""
        self.sent, self.received = bytearray(), bytearray()
        self._taken = 0
        source = f"127.{rng.randrange(1, 255)}.{rng.randrange(256)}.{rng.randrange(2, 255)}"
        self.socket = socket.create_connection((HOST, port), CONNECT_S, (source, 0))
        # Close with a reset: a million connections in TIME_WAIT would use up the ports.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname=HOST)
            except OSError as error:
                self.socket.close()
                raise BrokerClosed(str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Raises BrokerClosed."""
        self.sent += data
        try:
            self.socket.sendall(data)
        except OSError:
            raise BrokerClosed("while sending") from None

    def receive(self, seconds: float) -> bytes:
        """Return the next bytes; nothing if none come in time. Raises BrokerClosed."""
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (TimeoutError, ssl.SSLWantReadError):
            return b""
        except OSError as error:
            raise BrokerClosed(str(error)) from None
        if not data:
            raise BrokerClosed("in order")
        self.received += data
        return data

    def next_frame(self, seconds: float = ANSWER_S) -> bytes:
        """Return the next response that is whole, without its length; nothing in time is an empty one.

        Raises BrokerClosed.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            frames = frames_in(self.received)
            if len(frames) > self._taken:
                self._taken += 1
                return frames[self._taken - 1]
            self.receive(max(deadline - time.monotonic(), 0.001))
        return b""

    def drain(self) -> bool:
        """Receive until the broker closes the connection or falls silent. Return whether it has closed."""
        try:
            while self.receive(QUIET_S):
                pass
        except BrokerClosed:
            return True
        return False

    def intrusions(self, *, may_send: bool) -> list[str]:
        """Return a sentence for each response that the client had no right to.

        With `may_send` the client was authenticated, as a user who has no rights.
        """
        found = []
        if MARKER.encode() in self.received:
            found.append(f"a response names the topic {MARKER}")
        if not may_send:
            # Messages of SCRAM without a Kafka header are ASCII text: they begin above all of our correlation ids.
            forbidden = {
                frame[4:HEAD_BYTES]
                for frame in frames_in(self.sent)
                if int.from_bytes(frame[:2], "big") not in SASL_APIS
                and int.from_bytes(frame[4:HEAD_BYTES], "big") < CORRELATION_IDS
            }
            found += [
                f"a response to request {frame[:4].hex()} of a client that is not authenticated: {frame[:60]!r}"
                for frame in frames_in(self.received)
                if frame[:4] in forbidden
            ]
        return found


def frames_in(stream: bytes | bytearray) -> list[bytes]:
    """Return the whole frames at the begin of a stream, as far as their lengths are valid."""
    frames, at = [], 0
    while len(stream) >= at + 4:
        length = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if length < 0 or len(stream) < at + 4 + length:
            break
        frames.append(bytes(stream[at + 4 : at + 4 + length]))
        at += 4 + length
    return frames
