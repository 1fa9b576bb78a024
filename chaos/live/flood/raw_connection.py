"""A blocking connection to a broker that also sends frames of any content."""

import socket
import struct
from typing import Any

from cordwood.client.blocking import BlockingConnection
from cordwood.client.codec import ResponseFrames

ANSWER_S = 60.0
CLIENT_ID = "flood"
FRAME_BYTES_MAX = (1 << 31) - 1
"""A large request may have a larger response than any client asks for."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Close with a reset: thousands of connections in TIME_WAIT would use up the ports."""


class RawConnection(BlockingConnection):
    """A connection that ends with a reset. The caller may also send to its socket."""

    def __init__(self, address: str, timeout_s: float = ANSWER_S, receive_bytes: int | None = None) -> None:
        """Connect. `receive_bytes` is the size of the socket's receive buffer, for a reader that reads nothing."""
        host, _, port = address.rpartition(":")
        super().__init__(socket.socket(), CLIENT_ID, ResponseFrames(FRAME_BYTES_MAX))
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.socket.settimeout(timeout_s)
        self.socket.connect((host, int(port)))


def ask(address: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
    """Send one request on a connection of its own, and return its answer."""
    with RawConnection(address, timeout_s) as connection:
        return connection.ask(request)
