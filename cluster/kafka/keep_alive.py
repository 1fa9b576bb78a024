"""TCP keepalive settings: detection of a peer that vanished without closing the connection."""

import socket
from typing import NamedTuple


class KeepAlive(NamedTuple):
    """Idle seconds before the first probe, seconds between probes, and number of probes."""

    idle_s: int
    interval_s: int
    probes: int

    def apply(self, connected: socket.socket) -> None:
        """Set the socket's keepalive options, and TCP_NODELAY so that small frames are sent immediately."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, limit in zip(("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"), self, strict=True):
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), limit)
