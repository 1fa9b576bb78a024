"""The owner of TLS connections, and the states of a connection."""

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cordwood.cluster.security.tls_transport import TlsTransport


class TlsState(Enum):
    """A connection's state. A server waits for a ClientHello before it allocates anything."""

    HELLO = 1
    QUEUED = 2
    HANDSHAKE = 3
    OPEN = 4
    CLOSED = 5


class Owner(Protocol):
    """The side that makes or accepts TLS connections."""

    def arrived(self, transport: "TlsTransport") -> None:
        """Take note of a connection without a handshake."""
        ...

    def hello(self, transport: "TlsTransport") -> None:
        """Call `transport.begin`, now or later: a client has begun a handshake."""
        ...

    def failed(self, transport: "TlsTransport", sentence: str) -> float:
        """Take note of a failed handshake. Return the seconds until the other side gets an answer."""
        ...

    def done(self, transport: "TlsTransport") -> None:
        """Take note of the end of a handshake: it is complete, or the connection is closed."""
        ...
