"""TCP keepalive settings: detection of a peer that vanished without closing the connection."""

import socket
from typing import NamedTuple


class KeepAlive(NamedTuple):
    """Idle seconds before the first probe, seconds between probes, and number of probes."""

    idle_s: int
    interval_s: int
    probes: int
    covers_unacknowledged: bool = False
    """Whether the same time limits bytes that the peer does not acknowledge (RFC 5482).

    There are no probes while such bytes are sent again, for a quarter of an hour. Not for a peer that may stop reading.
    """

    @property
    def limit_s(self) -> int:
        """Seconds after which a peer without a response counts as vanished."""
        return self.idle_s + self.interval_s * self.probes

    def apply(self, connected: socket.socket) -> None:
        """Set the socket's keepalive options, and TCP_NODELAY so that small frames are sent immediately."""
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = {"TCP_KEEPIDLE": self.idle_s, "TCP_KEEPINTVL": self.interval_s, "TCP_KEEPCNT": self.probes}
        if self.covers_unacknowledged:
            limits["TCP_USER_TIMEOUT"] = self.limit_s * 1000
        for option, limit in limits.items():
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), limit)
