"""One end of a simulated TCP connection: an asyncio transport with delayed, ordered or blocked delivery."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from cordwood.chaos.sim.loop import Process

if TYPE_CHECKING:
    from cordwood.chaos.sim.network import SimulatedNetwork

HIGH_WATER_BYTES = 64 << 10
SOCKET_BUFFER_BYTES = 512 << 10
"""Bytes that the kernel buffers before `pause_writing`, for a protocol that sets its own limits."""
ORDER_S = 1e-6


class _Socket:
    """Socket options, as far as they are used: the TCP keepalive timeout."""

    def __init__(self) -> None:
        self._options: dict[int, int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if level == socket.IPPROTO_TCP:
            self._options[option] = value

    @property
    def keep_alive_s(self) -> float | None:
        try:
            idle, interval = self._options[socket.TCP_KEEPIDLE], self._options[socket.TCP_KEEPINTVL]
            return idle + interval * self._options[socket.TCP_KEEPCNT]
        except KeyError:
            return None


class End(asyncio.Transport):
    """One end of a connection. Data written here is read at `other`."""

    outside = Context()
    """The context of the network's own callbacks, outside any process."""

    def __init__(self, network: "SimulatedNetwork", process: Process, context: Context, peer: tuple[str, int]) -> None:
        self._socket = _Socket()
        super().__init__({"peername": peer, "socket": self._socket})
        self.process, self._network, self._context = process, network, context
        self.other: End
        self.protocol: asyncio.BaseProtocol | None = None
        self._undelivered: deque[bytes | None] = deque()
        """Data in order; None for the end of the stream."""
        self._on_the_way = 0
        """The number of `_undelivered` items in flight. A cut returns all of them to the queue."""
        self._cuts_met = 0
        self._arrives_at_s = 0.0
        self._inbox: deque[memoryview] = deque()
        """Received data that the protocol has not read yet."""
        self._buffered_bytes = 0
        """Bytes that were written here and not yet read at the other end."""
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_lost = self._is_closing = self._is_write_paused = self._is_read_paused = False

    @property
    def keep_alive_s(self) -> float | None:
        return self._socket.keep_alive_s

    def attach(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Create the protocol of the accepting side."""

        def accept() -> None:
            self.protocol = factory()
            self.protocol.connection_made(self)
            self._read()

        self._in_process(accept)

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or not self.process.is_alive:
            return
        data = bytes(data)
        self._buffered_bytes += len(data)
        rng, split_share = self._network.rng, self._network.split_share
        if split_share and len(data) > 1 and rng.random() < split_share:
            at = rng.randrange(1, len(data))
            self._undelivered.append(data[:at])
            data = data[at:]
        self._undelivered.append(data)
        self.flush()
        if self._buffered_bytes > self._high and not self._is_write_paused and self.protocol is not None:
            self._is_write_paused = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._undelivered.append(None)
            self.flush()
            self.lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self.lose(None)
        # A cut link drops the reset too; the other side is left with a half-open connection.
        if not self._network.is_cut(self.process.host, self.other.process.host):
            delay_s = self._network.delay_s(self.process.host, self.other.process.host)
            loop = self._network.loop
            loop.call_outside(loop.passed_s + delay_s, self.other.lose, None, context=self.outside)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self._buffered_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = HIGH_WATER_BYTES if high is None else high
        self._high = SOCKET_BUFFER_BYTES + high
        self._low = SOCKET_BUFFER_BYTES + (high // 4 if low is None else low)

    def pause_reading(self) -> None:
        self._is_read_paused = True

    def resume_reading(self) -> None:
        self._is_read_paused = False
        self._in_process(self._read)

    def flush(self) -> None:
        """Send all queued data that may be sent."""
        undelivered, network = self._undelivered, self._network
        count = len(undelivered)
        if count == self._on_the_way:
            return
        here, there, loop = self.process.host, self.other.process.host, network.loop
        if network.has_cuts and network.is_cut(here, there):
            return
        for place in range(self._on_the_way, count):
            behind_s = ORDER_S
            if network.has_slow_links:
                behind_s += network.transfer_s(here, there, len(undelivered[place] or b""))
            at_s, after_s = loop.passed_s + network.delay_s(here, there), self._arrives_at_s + behind_s
            self._arrives_at_s = at_s if at_s > after_s else after_s
            loop.call_outside(self._arrives_at_s, self._arrive, self._cuts_met, context=self.outside)
        self._on_the_way = count

    def lose(self, error: Exception | None) -> None:
        """Close this end of the connection."""
        if not self._is_lost:
            self._is_lost = True
            self._network.forget(self)
            self._in_process(self._tell_lost, error)

    def _arrive(self, cuts_met: int) -> None:
        if cuts_met != self._cuts_met:
            return
        network, other = self._network, self.other
        if network.has_cuts and network.is_cut(self.process.host, other.process.host):
            self._cuts_met += 1
            self._on_the_way = 0
            return
        self._on_the_way -= 1
        data = self._undelivered.popleft()
        if data is None:
            other.lose(None)
        elif not other._is_lost:
            loop = network.loop
            if loop.trace is not None:
                loop.trace.arrived(other.process.host, data)
            other._inbox.append(memoryview(data))
            if not other._is_read_paused:
                loop.call_now(other._read, other.process, other._context)

    def _read(self) -> None:
        """Pass received data to the protocol until it pauses reading."""
        protocol, inbox, other = self.protocol, self._inbox, self.other
        while protocol is not None and inbox and not self._is_read_paused and not self._is_lost:
            data = inbox.popleft()
            size = len(data)
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer: Any = protocol.get_buffer(size)
                if size > len(buffer):
                    size = len(buffer)
                    inbox.appendleft(data[size:])
                    data = data[:size]
                buffer[:size] = data
                other._buffered_bytes -= size
                if other._is_write_paused:
                    other._resume_writing()
                protocol.buffer_updated(size)
            else:
                assert isinstance(protocol, asyncio.Protocol)
                other._buffered_bytes -= size
                if other._is_write_paused:
                    other._resume_writing()
                protocol.data_received(bytes(data))

    def _resume_writing(self) -> None:
        """Let the protocol write again, if the other end has read enough."""
        if self._buffered_bytes <= self._low:
            self._is_write_paused = False
            if not self._is_lost and self.protocol is not None:
                self._in_process(self.protocol.resume_writing)

    def _tell_lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def _in_process(self, step: Callable[..., object], *arguments: Any) -> None:
        self._network.loop.call_soon(step, *arguments, context=self._context)
