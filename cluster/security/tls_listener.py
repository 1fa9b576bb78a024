"""The server side of TLS handshakes on one listener: pace, deadline, and one log line for each that fails."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from cordwood.cluster.security.tls_transport import TlsTransport
from cordwood.replication.measures import Clock

HANDSHAKE_S = 10.0
"""Time for a handshake, from the TCP connection on."""
START_SHARE, SUSPECT_SHARE = 0.5, 0.1
"""The largest shares of the event loop's time in which handshakes begin: of all clients, and of those at addresses with
failed handshakes, which wait for the others. The signature of a handshake takes up to 2 ms (RSA of 2048 bits)."""
SUSPECT_S = 60.0
"""Time for which an address counts as one with failed handshakes."""
SUSPECTS_MAX = 4096
FAILURE_DELAY_S, FAILURE_DELAY_MAX_S = 1.0, 8.0
"""Mean delay of the answer to an address's second failed handshake. It doubles with each: clients retry in a loop."""
PHASES = 64
"""Different delays, so that clients that fail together do not come back together."""

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

    def __init__(self, name: str, context: Callable[[], ssl.SSLContext], gate: Gate, clock: Clock) -> None:
        """`context` returns the newest context: handshakes that have begun keep theirs. `clock` measures them."""
        self._name, self._context, self._gate, self._clock = name, context, gate, clock
        self._loop = asyncio.get_running_loop()
        self._since: dict[TlsTransport, float] = {}
        """Connections without a completed handshake, oldest first."""
        self._queued, self._suspect = deque[TlsTransport](), deque[TlsTransport]()
        self._next_start: asyncio.TimerHandle | None = None
        self._failures: dict[str, tuple[float, float]] = {}
        """The time of an address's last failed handshake, and the mean delay of the answer to the next."""
        self._phase = 0
        self._deadline: asyncio.TimerHandle | None = None

    def wrap(self, protocol: asyncio.BaseProtocol) -> TlsTransport:
        """Return the protocol of an accepted TCP connection, which makes `protocol` connected after the handshake."""
        return TlsTransport(self, protocol)

    def close(self) -> None:
        """Abort all handshakes."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._next_start is not None:
            self._next_start.cancel()
        for transport in list(self._since):
            transport.abort()

    def arrived(self, transport: TlsTransport) -> None:
        self._since[transport] = self._loop.time()
        if self._deadline is None:
            self._deadline = self._loop.call_later(HANDSHAKE_S, self._end_late)
        self._gate.shaking(transport)

    def hello(self, transport: TlsTransport) -> None:
        (self._suspect if self._is_suspect(transport.client_host) else self._queued).append(transport)
        if self._next_start is None:
            self._start_next()

    def failed(self, transport: TlsTransport, sentence: str) -> float:
        host = transport.client_host
        _events.warning("tls.handshake_failed", listener=self._name, client=host, reason=sentence)
        self._gate.failed(self._name, host, sentence)
        self._phase = (self._phase + 1) % PHASES
        delay_s = self._failures[host][1] if self._is_suspect(host) else 0.0
        self._failures.pop(host, None)
        self._failures[host] = self._loop.time(), min(max(2 * delay_s, FAILURE_DELAY_S), FAILURE_DELAY_MAX_S)
        if len(self._failures) > SUSPECTS_MAX:
            del self._failures[next(iter(self._failures))]
        return delay_s * (0.5 + self._phase / PHASES)

    def done(self, transport: TlsTransport) -> None:
        if self._since.pop(transport, None) is not None:
            self._gate.shaken(transport)

    def _is_suspect(self, host: str) -> bool:
        return host in self._failures and self._loop.time() - self._failures[host][0] < SUSPECT_S

    def _start_next(self) -> None:
        """Begin the next handshake, and the one after it only when other work has had its share of the time."""
        self._next_start = None
        queue, share = (self._queued, START_SHARE) if self._queued else (self._suspect, SUSPECT_SHARE)
        if queue:
            began = self._clock()
            queue.popleft().begin(self._context())
            took_s = self._clock() - began
            self._next_start = self._loop.call_later(took_s * (1 / share - 1), self._start_next)

    def _end_late(self) -> None:
        """Refuse the handshakes whose time has passed, and look again when that of the next one has."""
        now = self._loop.time()
        self._deadline = None
        for transport, since in list(self._since.items()):
            if now - since < HANDSHAKE_S:
                self._deadline = self._loop.call_later(since + HANDSHAKE_S - now, self._end_late)
                return
            transport.refuse(f"the client did not complete the TLS handshake within {HANDSHAKE_S:g} s")
            transport.abort()
