"""The socket server: listeners, connection limits with priority for brokers (KIP-402), and closing of idle clients."""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Callable

import structlog

from cordwood.cluster.config.listeners import Listener
from cordwood.cluster.config.per_ip import per_ip_overrides
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.kafka.authenticator import Authentication
from cordwood.cluster.kafka.client_throttle import ClientThrottle
from cordwood.cluster.kafka.connection import Connection, Handle
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.fetch_sessions import FetchSessions
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.kafka.wire import OTHER_BYTES_MAX
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.security.audit.event import AUTHENTICATE, FAILED, AuditEvent
from cordwood.cluster.security.audit.log import NO_AUDIT, AuditSink
from cordwood.cluster.security.certificate_rules import NoRuleMatches
from cordwood.cluster.security.principal import SSL, Identity
from cordwood.cluster.security.tls_listener import TlsListener
from cordwood.cluster.security.tls_listeners import TlsListeners
from cordwood.cluster.security.tls_transport import TlsTransport
from cordwood.replication.channel import ReadPiece
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog

SWEEP_INTERVAL_S = 5.0
SHRINK_AFTER_S = 10.0
PARTIAL_FRAME_AFTER_S = 60.0
"""A connection is closed if a request is incomplete for longer than this: it holds a receive buffer."""
STALLED_AFTER_S = 60.0
"""A connection is closed if its client takes no response bytes for this long."""
UNADMITTED_MAX = 64
IDLE_S_MIN, SILENT_S_MIN = 10.0, 1.0
"""Minimum idle time before eviction in favour of a new client: in general, and before authentication or any byte."""
AUTHENTICATION_S_MAX = 30.0
"""A connection is closed if it takes longer than this to authenticate."""
EVICTED_AT_ONCE = 256
BACKLOG = 1024

_events = structlog.get_logger("server")


class Server:
    """All client connections of a broker, on all listeners."""

    keep_alive = KeepAlive(idle_s=60, interval_s=15, probes=4)

    def __init__(
        self,
        settings: Settings,
        end_of_tick: EndOfTickScheduler,
        read_piece: ReadPiece,
        handle: Handle,
        damaged: Callable[[DamagedLog], None],
        measures: RequestMeasures,
        memory: Memory,
        sessions: FetchSessions,
        authentication: Authentication,
        tls: TlsListeners | None = None,
        audit: AuditSink = NO_AUDIT,
        throttle: ClientThrottle | None = None,
    ) -> None:
        self.end_of_tick, self.read_piece, self.damaged = end_of_tick, read_piece, damaged
        self.request_bytes_max = settings.socket_request_max_bytes
        self.other_bytes_max = OTHER_BYTES_MAX
        self.memory = ConnectionMemory(memory, lambda: self._connections, sessions.give_back)
        self._settings, self._handle, self._measures = settings, handle, measures
        self._sessions, self._authentication = sessions, authentication
        self._connections: dict[Connection, None] = {}
        self._unadmitted: dict[Connection, None] = {}
        """Connections beyond the limits, closed unless they belong to brokers."""
        self._idle: deque[tuple[Connection, float]] = deque()
        """Candidates for eviction, with their time of last activity."""
        self._by_host: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._tls, self._audit, self._throttle = tls, audit, throttle or ClientThrottle()
        self._per_ip = per_ip_overrides(settings)
        self._handshakes: list[TlsListener] = []
        self._shaking: dict[TlsTransport, None] = {}
        """TLS connections before the end of their handshake, oldest first. They count for the limits."""
        self._sweep: asyncio.TimerHandle | None = None

    async def bind(self, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        """Bind the listeners without accepting yet. Return them with their actual ports. Raises OSError."""
        loop = asyncio.get_running_loop()
        bound = []
        for listener in listeners:
            try:
                server = await loop.create_server(
                    self._factory(listener),
                    listener.host or None,
                    listener.port,
                    backlog=BACKLOG,
                    reuse_address=True,
                    start_serving=False,
                )
            except OSError as error:
                where = f"listener {listener.name} on {listener.host}:{listener.port}"
                raise OSError(error.errno, f"cannot listen: {error.strerror}", where) from error
            self._servers.append(server)
            bound.append(listener.bound(server.sockets[0].getsockname()[1]))
        return tuple(bound)

    @property
    def connection_count(self) -> int:
        """The number of open connections on all listeners."""
        return len(self._connections) + len(self._shaking)

    async def serve(self) -> None:
        for server in self._servers:
            await server.start_serving()
        if self._tls is not None:
            self._tls.start()
        self._sweep_later()

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        self.memory.close()
        if self._tls is not None:
            await self._tls.close()
        for server in self._servers:
            server.close()
        for handshakes in self._handshakes:
            handshakes.close()
        for connection in list(self._connections):
            connection.close()

    def shaking(self, transport: TlsTransport) -> None:
        """Count a TLS connection. Beyond a limit it takes no place from a client, but from the oldest handshake.

        UNADMITTED_MAX handshakes may exceed the limits: some are of brokers.
        """
        host = transport.client_host
        self._shaking[transport] = None
        self._by_host[host] += 1
        if len(self._shaking) > UNADMITTED_MAX:
            if self._by_host[host] > self._limit_of(host):
                self._end_handshake(transport, self._refusal_of(host))
            elif self.connection_count > self._settings.max_connections:
                self._end_handshake(next(iter(self._shaking)), self._refusal)

    def shaken(self, transport: TlsTransport) -> None:
        if self._shaking.pop(transport, transport) is None:
            self._forget_host(transport.client_host)

    def _end_handshake(self, transport: TlsTransport, refusal: str) -> None:
        self._measures.connections_refused += 1
        self.shaken(transport)
        _events.warning("connection.closed", client=transport.client_host, reason=f"{refusal}: a TLS handshake ends")
        transport.abort()

    def failed(self, listener: str, host: str, reason: str) -> None:
        """Take note of a TLS handshake that failed."""
        detail = f"listener {listener}: {reason}"
        self._audit.note(
            AuditEvent(AUTHENTICATE, Identity(host=host, mechanism=SSL), "", FAILED, detail, is_refusal=True)
        )

    def opened(self, connection: Connection) -> None:
        """Register a connection. Beyond a connection limit, admit it only as a broker's."""
        host = connection.client_host
        self._connections[connection] = None
        self._by_host[host] += 1
        self._measures.connections_opened += 1
        connection.number = self._measures.connections_opened
        if connection.must_authenticate:
            self._authentication.begin(connection)
        refusal = self._why_not(host)
        if refusal is not None:
            self._admit_broker(connection, refusal)
        if self._tls is not None and (tls := self._tls.of(connection.listener)) is not None:
            try:
                connection.identity = tls.identity(host, connection.peer_certificate)
            except NoRuleMatches as error:
                self.failed(connection.listener, host, str(error))
                connection.close(str(error))
        if self._throttle.limits_addresses and not self._throttle.opened(connection):
            self._measures.connections_refused += 1
            connection.close()

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._unadmitted.pop(connection, None)
            self._sessions.end(connection.fetch_session)
            self._forget_host(connection.client_host)

    def _forget_host(self, host: str) -> None:
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def close_brokers(self, may_follow: Callable[[Identity], bool]) -> None:
        """Close the connections of followers that may no longer follow, after a change of the access rules."""
        for connection in list(self._connections):
            if connection.is_broker and not may_follow(connection.identity):
                connection.close(f"{connection.identity.principal} may no longer do CLUSTER_ACTION")

    @property
    def _refusal(self) -> str:
        return f"max.connections is {self._settings.max_connections}"

    def _limit_of(self, host: str) -> int:
        return self._per_ip.get(host, self._settings.max_connections_per_ip)

    def _refusal_of(self, host: str) -> str:
        key = "max.connections.per.ip.overrides" if host in self._per_ip else "max.connections.per.ip"
        return f"{key} is {self._limit_of(host)}"

    def _why_not(self, host: str) -> str | None:
        """Return the limit that is exceeded; None if there is none, or another connection gave way instead."""
        if self._by_host[host] > self._limit_of(host):
            return self._refusal_of(host)
        if self.connection_count <= self._settings.max_connections:
            return None
        if self._shaking:
            # Clients that have completed a handshake have priority over those that have not.
            self._end_handshake(next(iter(self._shaking)), self._refusal)
            return None
        return None if self._close_idle() else self._refusal

    def _admit_broker(self, connection: Connection, refusal: str) -> None:
        """Let a broker identify itself by its first frame, so that clients cannot lock replication out (KIP-402).

        At most UNADMITTED_MAX connections wait for their first frame. Beyond that, the oldest of them is closed.
        """
        self._measures.connections_refused += 1
        connection.admit_broker(refusal)
        self._unadmitted[connection] = None
        while len(self._unadmitted) > UNADMITTED_MAX:
            oldest = next(iter(self._unadmitted))
            del self._unadmitted[oldest]
            if not oldest.is_broker:
                oldest.close(refusal)

    def _close_idle(self) -> bool:
        """Close the client connection that has been idle for longest. Return False if none is idle long enough."""
        while True:
            if not self._idle:
                self._idle.extend(self._longest_idle())
            if not self._idle:
                return False
            connection, last_active = self._idle.popleft()
            if connection.is_open and connection.last_active == last_active and not connection.is_waited_for:
                self._measures.connections_evicted += 1
                connection.close()
                return True

    def _longest_idle(self) -> list[tuple[Connection, float]]:
        """Return up to EVICTED_AT_ONCE candidates, so that not every new client costs a scan of all connections."""
        now = asyncio.get_running_loop().time()
        idle = (
            connection
            for connection in self._connections
            if connection.is_open
            and not connection.is_broker
            and connection.idle_for(now) > (SILENT_S_MIN if connection.is_unused else IDLE_S_MIN)
        )
        found = heapq.nsmallest(EVICTED_AT_ONCE, idle, key=lambda connection: connection.last_active)
        return [(connection, connection.last_active) for connection in found]

    def _factory(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        tls = None if self._tls is None else self._tls.of(listener.name)
        if tls is None:
            return lambda: self._accept(listener)
        handshakes = TlsListener(listener.name, tls.server_context, self, self._measures.clock)
        self._handshakes.append(handshakes)
        return lambda: handshakes.wrap(self._accept(listener))

    def _accept(self, listener: Listener) -> Connection:
        connection = Connection(self, listener.name, self._handle)
        connection.must_authenticate = listener.protocol.startswith("SASL_")
        return connection

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        idle_after_s = self._settings.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            idle_s = now - connection.last_active
            if connection.is_authenticating and now - connection.opened_at > AUTHENTICATION_S_MAX:
                connection.close(f"the client has not authenticated within {AUTHENTICATION_S_MAX:.0f} s")
            elif connection.partial_for(now) > PARTIAL_FRAME_AFTER_S:
                connection.close(f"a request has been incomplete for {connection.partial_for(now):.0f} s")
            elif connection.stalled_for(now) > STALLED_AFTER_S:
                connection.close(f"responses have not been read for {connection.stalled_for(now):.0f} s")
            elif not connection.is_waited_for and idle_s > idle_after_s:
                connection.close()
            elif idle_s > SHRINK_AFTER_S:
                connection.received.shrink()
        self._sweep_later()
