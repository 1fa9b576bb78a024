"""The listening side: sockets, how many connections there may be, and which have been idle for too long."""

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from cordwood.cluster.config import Settings
from cordwood.cluster.kafka.connection import Connection, Handle, KeepAlive
from cordwood.cluster.kafka.request_measures import RequestMeasures
from cordwood.cluster.listeners import Listener
from cordwood.replication.housekeeping import RunBlocking
from cordwood.replication.waiters import Wakeups
from cordwood.storage.errors import DamagedLog

SWEEP_INTERVAL_S = 5.0
SHRINK_AFTER_S = 10.0
PARTIAL_FRAME_AFTER_S = 60.0
"""A request that takes longer than this to arrive keeps memory for nothing."""
BACKLOG = 1024

_events = structlog.get_logger("server")


class Server:
    """All connections of this broker, on all its listeners."""

    keep_alive = KeepAlive(idle_s=60, interval_s=15, probes=4)

    def __init__(
        self,
        settings: Settings,
        wakeups: Wakeups,
        run_blocking: RunBlocking,
        handle: Handle,
        damaged: Callable[[DamagedLog], None],
        measures: RequestMeasures,
    ) -> None:
        self.wakeups, self.run_blocking, self.damaged = wakeups, run_blocking, damaged
        self.request_bytes_max = settings.socket_request_max_bytes
        self.queued_bytes_max = settings.queued_max_request_bytes
        self._settings, self._handle, self._measures = settings, handle, measures
        self._connections: dict[Connection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None

    async def bind(self, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        """Take the addresses, without answering yet. Returns the listeners with the ports they got. Raises OSError."""
        loop = asyncio.get_running_loop()
        bound = []
        for listener in listeners:
            try:
                server = await loop.create_server(
                    self._factory(listener.name),
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
        """How many are open, on all listeners."""
        return len(self._connections)

    async def serve(self) -> None:
        for server in self._servers:
            await server.start_serving()
        self._sweep_later()

    async def close(self) -> None:
        """Take no more connections and end those there are."""
        if self._sweep is not None:
            self._sweep.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()

    def opened(self, connection: Connection) -> bool:
        """Whether one more connection is allowed; one that is not is closed at once."""
        host = connection.client_host
        self._connections[connection] = None
        self._by_host[host] += 1
        self._measures.connections_opened += 1
        refusal = self._why_not(host)
        if refusal is not None:
            self._measures.connections_refused += 1
            connection.close(refusal)
        return refusal is None

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._by_host[connection.client_host] -= 1
            if not self._by_host[connection.client_host]:
                del self._by_host[connection.client_host]

    def _why_not(self, host: str) -> str | None:
        """Why there are too many connections; None where there are not."""
        settings = self._settings
        if len(self._connections) > settings.max_connections:
            return f"max.connections is {settings.max_connections}"
        if self._by_host[host] > settings.max_connections_per_ip:
            return f"max.connections.per.ip is {settings.max_connections_per_ip}"
        return None

    def _factory(self, listener: str) -> Callable[[], Connection]:
        return lambda: Connection(self, listener, self._handle)

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep_idle)

    def _sweep_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        idle_after_s = self._settings.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            idle_s = now - connection.last_active
            if connection.partial_for(now) > PARTIAL_FRAME_AFTER_S:
                connection.close(f"a request has been incomplete for {connection.partial_for(now):.0f} s")
            elif not connection.is_waited_for and idle_s > idle_after_s:
                connection.close()
            elif idle_s > SHRINK_AFTER_S:
                connection.shrink()
        self._sweep_later()
