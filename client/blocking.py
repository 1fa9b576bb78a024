"""A blocking connection to a broker: a socket, with or without TLS and SASL, under a `ClientCodec`."""

import socket
import time
from collections import deque
from typing import Any, Self

from cordwood.client.codec import ClientCodec, ResponseFrames
from cordwood.client.sasl import SaslDialog
from cordwood.client.security import OPEN, ClientSecurity
from cordwood.client.tls import explained

SESSION_PART = 0.85
"""The part of a session's lifetime after which the client authenticates again, as Kafka's clients do."""


class BlockingConnection:
    """A connection with any number of requests in flight, from one thread.

    Methods raise OSError if the broker does not answer in time, closes the connection or sends a BadResponse.
    """

    def __init__(
        self, connected: socket.socket, client_id: str | None = None, frames: ResponseFrames | None = None
    ) -> None:
        """Take a connected socket, whose timeout is that of each send and receive."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self._codec = ClientCodec[None](client_id, frames)
        self._early: deque[Any] = deque()
        """Responses received before their turn, so that the connection was idle for an authentication."""
        self._security = OPEN
        self._renew_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_idle(self) -> bool:
        """True if every request has its response."""
        return self._codec.is_idle and not self._early

    def close(self) -> None:
        """Close the socket, even with requests in flight."""
        self.socket.close()

    def authenticate(self, security: ClientSecurity) -> None:
        """Authenticate with SASL if `security` has it; `send` does so again before the session ends (KIP-368).

        Raises NotAuthenticated.
        """
        credentials = security.credentials()
        if credentials is None:
            return
        self._renew_s = None
        dialog = SaslDialog(credentials)
        request = dialog.next(self.ask(dialog.begin()))
        while request is not None:
            request = dialog.next(self.ask(request))
        if dialog.session_lifetime_ms > 0:
            self._security = security
            self._renew_s = time.monotonic() + SESSION_PART * dialog.session_lifetime_ms / 1000

    def ask(self, request: Any) -> Any:
        """Send a kio request and return its response."""
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Send a kio request; `receive` returns its response later."""
        if self._renew_s is not None and time.monotonic() >= self._renew_s:
            self._authenticate_again()
        self.socket.sendall(self._codec.encode(request, None))

    def receive(self) -> Any:
        """Return the response to the oldest request in flight."""
        if self._early:
            return self._early.popleft()
        return self._codec.take(self.receive_frame()).message

    def receive_frame(self) -> memoryview:
        """Return the next frame, without its length. It is valid until the next one."""
        frames = self._codec.frames
        while (frame := frames.next()) is None:
            count = self.socket.recv_into(frames.room())
            frames.received(count)
            if not count:
                raise ConnectionError("the broker closed the connection")
        return frame

    def _authenticate_again(self) -> None:
        early = self._early
        while not self._codec.is_idle:
            early.append(self._codec.take(self.receive_frame()).message)
        self._early = deque()
        self.authenticate(self._security)
        self._early = early


def connect(
    address: str,
    timeout_s: float,
    client_id: str | None = None,
    security: ClientSecurity = OPEN,
    frames: ResponseFrames | None = None,
) -> BlockingConnection:
    """Connect to host:port, and authenticate both sides. Raises OSError: TlsFailed or NotAuthenticated is final.

    Raises WrongSetting for a file of the TLS settings that cannot be used.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    context = None if security.tls is None else security.tls.context()
    connected = socket.create_connection((host, int(port)), timeout_s)
    try:
        if context is not None:
            connected = context.wrap_socket(connected, server_hostname=host)
        connection = BlockingConnection(connected, client_id, frames)
        connection.authenticate(security)
    except OSError as error:
        connected.close()
        raise explained(error, address) from None
    except BaseException:
        connected.close()
        raise
    return connection
