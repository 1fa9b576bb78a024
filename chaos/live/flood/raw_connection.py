"""A blocking connection to a broker that sends frames and reads answers in order."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from cordwood.cluster.kafka.questions import decode_response, encode_request

ANSWER_S = 60.0
CLIENT_ID = b"flood"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""A connection ends with a reset: thousands of them would use up the ports otherwise."""
LENGTH = struct.Struct(">i")


class RawConnection:
    """Raises OSError wherever the broker does not answer in time or closes the connection."""

    def __init__(self, address: str, timeout_s: float = ANSWER_S, receive_bytes: int | None = None) -> None:
        """`receive_bytes` is the size of the system's receive buffer, for a reader that takes nothing."""
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
        """One of kio's requests; its answer is left to `receive`."""
        self._next_id += 1
        self.socket.sendall(encode_request(request, self._next_id, CLIENT_ID))

    def ask(self, request: Any) -> Any:
        """The answer to one of kio's requests."""
        self.send(request)
        return decode_response(type(request), memoryview(self.receive()))

    def receive(self) -> bytes:
        """One whole frame, without its length."""
        return self._exactly(*LENGTH.unpack(self._exactly(LENGTH.size)))

    def _exactly(self, length: int) -> bytes:
        received = bytearray(length)
        rest = memoryview(received)
        while rest:
            count = self.socket.recv_into(rest)
            if not count:
                raise ConnectionError("the broker closed the connection in the middle of an answer")
            rest = rest[count:]
        return bytes(received)


def ask(address: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
    """One request on a connection of its own."""
    with RawConnection(address, timeout_s) as connection:
        return connection.ask(request)
