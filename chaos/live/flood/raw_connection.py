"""A blocking connection to a broker that sends frames and reads answers in order."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from cordwood.cluster.kafka.questions import decode_response, encode_request

ANSWER_S = 60.0
CLIENT_ID = b"flood"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Close with a reset: thousands of connections in TIME_WAIT would use up the ports."""
LENGTH = struct.Struct(">i")


class RawConnection:
    """A connection. Methods raise OSError where the broker does not answer in time or closes the connection."""

    def __init__(self, address: str, timeout_s: float = ANSWER_S, receive_bytes: int | None = None) -> None:
        """Connect. `receive_bytes` is the size of the socket's receive buffer, for a reader that reads nothing."""
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.socket.settimeout(timeout_s)
        self.socket.connect((host, int(port)))
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any) -> None:
        """Send one of kio's requests; `receive` returns its answer."""
        self._next_id += 1
        self.socket.sendall(encode_request(request, self._next_id, CLIENT_ID))

    def ask(self, request: Any) -> Any:
        """Send one of kio's requests, and return its answer."""
        self.send(request)
        return decode_response(type(request), memoryview(self.receive()))

    def receive(self) -> bytes:
        """Return one whole frame, without its length."""
        return self._exactly(*LENGTH.unpack(self._exactly(LENGTH.size)))

    def _exactly(self, length: int) -> bytes:
        received = bytearray(length)
        rest = memoryview(received)
        while rest:
            count = self.socket.recv_into(rest)
            if not count:
                raise ConnectionError("the broker closed the connection in the middle of a response")
            rest = rest[count:]
        return bytes(received)


def ask(address: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
    """Send one request on a connection of its own, and return its answer."""
    with RawConnection(address, timeout_s) as connection:
        return connection.ask(request)
