"""A blocking connection to a broker: a socket under a `ClientCodec`."""

import socket
from typing import Any, Self

from cordwood.client.codec import ClientCodec, ResponseFrames


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_idle(self) -> bool:
        """True if every request has its response."""
        return self._codec.is_idle

    def close(self) -> None:
        """Close the socket, even with requests in flight."""
        self.socket.close()

    def ask(self, request: Any) -> Any:
        """Send a kio request and return its response."""
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Send a kio request; `receive` returns its response later."""
        self.socket.sendall(self._codec.encode(request, None))

    def receive(self) -> Any:
        """Return the response to the oldest request in flight."""
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


def connect(address: str, timeout_s: float, client_id: str | None = None) -> BlockingConnection:
    """Connect to host:port. Raises OSError."""
    host, _, port = address.rpartition(":")
    return BlockingConnection(socket.create_connection((host, int(port)), timeout_s), client_id)
