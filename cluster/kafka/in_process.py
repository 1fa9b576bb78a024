"""In-process client connections: the broker's own Connection on an in-memory transport, without a socket.

A request over such a connection is checked, bounded and answered like one from outside.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from cordwood.client.codec import ResponseFrames
from cordwood.cluster.kafka.connection import Connection, Handle
from cordwood.cluster.kafka.connection_memory import ConnectionMemory
from cordwood.cluster.kafka.keep_alive import KeepAlive
from cordwood.cluster.kafka.peers import FRAME_BYTES_MAX
from cordwood.cluster.kafka.wire import OTHER_BYTES_MAX
from cordwood.cluster.resources.memory import Memory
from cordwood.cluster.security.principal import THIS_BROKER, Identity
from cordwood.replication.channel import Chunk, ReadPiece
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import DamagedLog


class InProcess:
    """The factory of in-process connections. Connection limits do not apply: the callers have limits of their own."""

    keep_alive = KeepAlive(idle_s=60, interval_s=15, probes=4)

    def __init__(
        self,
        end_of_tick: EndOfTickScheduler,
        read_piece: ReadPiece,
        damaged: Callable[[DamagedLog], None],
        request_bytes_max: int,
    ) -> None:
        self.end_of_tick, self.read_piece, self.damaged = end_of_tick, read_piece, damaged
        self.request_bytes_max, self.other_bytes_max = request_bytes_max, OTHER_BYTES_MAX
        self.memory = ConnectionMemory(Memory.unlimited())

    def open(
        self,
        listener: str,
        handle: Handle,
        received: Callable[[memoryview], None],
        identity: Identity = THIS_BROKER,
    ) -> "InProcessChannel":
        """Open a connection to a listener. `received` is called with every response, without its length."""
        connection = Connection(self, listener, handle)
        channel = InProcessChannel(connection, received)
        connection.identity = identity
        return channel

    def opened(self, _connection: Connection) -> None:
        """Do nothing: the caller of `open` has its own limits."""

    def closed(self, _connection: Connection) -> None:
        """Do nothing: the client end has `on_closed`."""


class InProcessChannel:
    """The client end of a connection, and the transport of its broker end."""

    def __init__(self, connection: Connection, received: Callable[[memoryview], None]) -> None:
        self.on_closed: Callable[[], None] | None = None
        self._connection, self._received = connection, received
        self._is_open = True
        self._frames = ResponseFrames(FRAME_BYTES_MAX)
        self._unread: deque[memoryview] = deque()
        """Bytes sent while the broker does not read. The client bounds their size."""
        self._is_read = True
        connection.connection_made(cast(asyncio.Transport, self))

    @property
    def is_open(self) -> bool:
        return self._is_open

    def push(self, chunks: list[Chunk]) -> None:
        """Send requests. The responses that need no wait arrive at the end of this event-loop iteration."""
        for chunk in chunks:
            assert isinstance(chunk, bytes), "a client sends no stretch of a log"
            self._unread.append(memoryview(chunk))
        self._feed()

    def close(self, reason: str | None = None) -> None:
        """Close the connection. Log `reason` if there is one."""
        if self._is_open:
            self._is_open = False
            self._connection.close(reason)
            self._connection.connection_lost(None)
            if self.on_closed is not None:
                self.on_closed()

    def _feed(self) -> None:
        connection, unread = self._connection, self._unread
        while unread and self._is_read and connection.is_open:
            rest = unread[0]
            room = connection.get_buffer(len(rest))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            if count < len(rest):
                unread[0] = rest[count:]
            else:
                unread.popleft()
            connection.buffer_updated(count)

    def write(self, data: Bytes) -> None:
        """Receive response bytes from the broker end, as its transport."""
        for frame in self._frames.feed(data):
            self._received(frame)

    def writelines(self, texts: Iterable[Bytes]) -> None:
        for text in texts:
            self.write(text)

    def abort(self) -> None:
        """Close from the broker end. As with a socket, `on_closed` runs in a later event-loop iteration."""
        asyncio.get_running_loop().call_soon(self.close)

    def get_extra_info(self, _name: str) -> Any:
        return None

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        """Do nothing: a client's requests bound the size of its responses."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True
        asyncio.get_running_loop().call_soon(self._feed)
