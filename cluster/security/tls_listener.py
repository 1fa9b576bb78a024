"""The server side of TLS handshakes on one listener: pace, deadline, and one log line for each that fails."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from cordwood.cluster.security.tls_transport import TlsTransport

HANDSHAKE_S = 10.0
"""Time for a handshake, from the TCP connection on."""
STARTS_MAX = 4
"""Handshakes that begin in one event-loop iteration. The signature of each takes up to 2 ms (RSA of 2048 bits)."""

_events = structlog.get_logger("tls")


class Gate(Protocol):
    """The owner of the listener's connections."""

    def shaking(self, transport: TlsTransport) -> None:
        """Count a connection before its handshake. It may be aborted."""
        ...

    def shaken(self, transport: TlsTransport) -> None:
        """Count the connection no longer: its protocol has it now, or it is lost."""
        ...

    def failed(self, listener: str, host: str, reason: str) -> None:
        """Take note of a handshake that failed."""
        ...


class TlsListener:
    """The handshakes of a listener. `wrap` is called for each accepted connection."""

    def __init__(self, name: str, context: Callable[[], ssl.SSLContext], gate: Gate) -> None:
        """`context` returns the newest context: handshakes that have begun keep theirs."""
        self._name, self._context, self._gate = name, context, gate
        self._loop = asyncio.get_running_loop()
        self._since: dict[TlsTransport, float] = {}
        """Connections without a completed handshake, oldest first."""
        self._queued: deque[TlsTransport] = deque()
        self._starts = 0
        self._deadline: asyncio.TimerHandle | None = None

    def wrap(self, protocol: asyncio.BaseProtocol) -> TlsTransport:
        """Return the protocol of an accepted TCP connection, which makes `protocol` connected after the handshake."""
        return TlsTransport(self, protocol)

    def close(self) -> None:
        """Abort all handshakes."""
        if self._deadline is not None:
            self._deadline.cancel()
        for transport in list(self._since):
            transport.abort()

    def arrived(self, transport: TlsTransport) -> None:
        self._since[transport] = self._loop.time()
        if self._deadline is None:
            self._deadline = self._loop.call_later(HANDSHAKE_S, self._end_late)
        self._gate.shaking(transport)

    def hello(self, transport: TlsTransport) -> None:
        if not self._starts:
            self._loop.call_soon(self._start_more)
        if self._starts < STARTS_MAX and not self._queued:
            self._starts += 1
            transport.begin(self._context())
        else:
            self._queued.append(transport)

    def done(self, transport: TlsTransport, failure: str | None) -> None:
        if self._since.pop(transport, None) is not None:
            self._gate.shaken(transport)
        if failure:
            _events.warning("tls.handshake_failed", listener=self._name, client=transport.client_host, reason=failure)
            self._gate.failed(self._name, transport.client_host, failure)

    def _start_more(self) -> None:
        self._starts = 0
        while self._queued and self._starts < STARTS_MAX:
            self._starts += 1
            self._queued.popleft().begin(self._context())
        if self._starts:
            self._loop.call_soon(self._start_more)

    def _end_late(self) -> None:
        """Refuse the handshakes whose time is over, and look again when the next one's is."""
        now = self._loop.time()
        self._deadline = None
        for transport, since in list(self._since.items()):
            if now - since < HANDSHAKE_S:
                self._deadline = self._loop.call_later(since + HANDSHAKE_S - now, self._end_late)
                return
            transport.refuse(f"the client did not complete the TLS handshake within {HANDSHAKE_S:g} s")
            transport.abort()
