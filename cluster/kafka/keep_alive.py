"""How soon the system notices that a connection's peer has vanished without a word."""

import socket
from typing import NamedTuple


class KeepAlive(NamedTuple):
    """Seconds of silence, then so many probes."""

    idle_s: int
    interval_s: int
    probes: int

    def apply(self, connected: socket.socket) -> None:
        """Set it; and what is small leaves at once."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, limit in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), self, strict=True):
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), limit)
