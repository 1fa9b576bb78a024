"""Slow HTTP readers: unsent response bytes per connection, and the eviction of stalled clients."""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from aiohttp.web_protocol import RequestHandler

from cordwood.cluster.kafka.connection_memory import guilt
from cordwood.cluster.resources.memory import MemoryPool

CHECK_INTERVAL_S = 1.0
STALLED_AFTER_S = 60.0
"""A client that reads none of its response for this long is disconnected."""

_events = structlog.get_logger("http")


class Readers:
    """The send buffers of all connections. If the pool is full, clients with the highest guilt are disconnected."""

    def __init__(self, connections: Callable[[], Sequence[RequestHandler]], pool: MemoryPool) -> None:
        self._connections, self._pool = connections, pool
        self._stalled: dict[asyncio.Transport, tuple[float, int]] = {}
        """The time since when a client has read nothing, and its unsent bytes."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Measure the send buffers, and disconnect stalled clients. Called before every response."""
        now, before = asyncio.get_running_loop().time(), self._stalled
        self._stalled = {}
        for connection in self._connections():
            transport = connection.transport
            if transport is not None and (size := transport.get_write_buffer_size()):
                since, had = before.get(transport, (now, size))
                self._stalled[transport] = (since, size) if size >= had else (now, size)
        self._pool.used = sum(size for _, size in self._stalled.values())
        by_guilt = sorted(self._stalled.items(), key=lambda row: guilt(row[1][1], now - row[1][0]), reverse=True)
        for transport, (since, size) in by_guilt:
            if self._pool.has_room(0) and now - since <= STALLED_AFTER_S:
                continue
            self._pool.used -= size
            self._pool.closes += 1
            _events.warning("http.stalled", unsent_bytes=size, seconds=round(now - since, 1))
            del self._stalled[transport]
            transport.abort()

    def _check_again(self) -> None:
        self.check()
        self.start()
