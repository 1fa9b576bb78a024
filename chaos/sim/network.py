"""A network in memory: hosts that listen and dial, and between each two of them latency, cuts and broken connections.

It behaves as TCP does. What is sent into a cut arrives, in order, after it has healed, unless somebody gave up before;
and who dials into a cut waits.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from cordwood.chaos.sim.loop import PROCESS, Process, SimulatedLoop

Factory = Callable[[], asyncio.Protocol]


class Network:
    """Made on the loop that it serves. Equal seeds and calls give equal runs."""

    def __init__(
        self, loop: SimulatedLoop, rng: random.Random, latency_s: tuple[float, float] = (0.0002, 0.003)
    ) -> None:
        self.loop, self.rng, self.latency_s = loop, rng, latency_s
        loop.network = self
        self._servers: dict[tuple[str, int], _Server] = {}
        self._ends: list[_End] = []
        self._cuts: set[tuple[str, str]] = set()

    def cut(self, one: str, other: str) -> None:
        """Nothing gets through between the two, in either direction."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def heal(self, *hosts: str) -> None:
        """End all cuts, or those between these hosts; what was held up arrives."""
        self._cuts = {cut for cut in self._cuts if hosts and not set(cut) <= set(hosts)}
        for end in list(self._ends):
            end.flush()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def disconnect(self, one: str, other: str) -> None:
        """Break the connections between two hosts; both sides notice."""
        for end in list(self._ends):
            if {end.process.host, end.other.process.host} == {one, other}:
                end.abort()

    def kill(self, process: Process, *, silently: bool = False) -> None:
        """The process dies. Its host resets its connections, unless that loses power too."""
        process.is_alive = False
        self._servers = {at: server for at, server in self._servers.items() if server.process is not process}
        for end in [end for end in self._ends if end.process is process]:
            self._ends.remove(end)
            if not silently:
                end.other.lose(ConnectionResetError())

    def listen(self, factory: Factory, host: str, port: int) -> "_Server":
        if (host, port) in self._servers:
            raise OSError(98, f"{host}:{port} is in use")
        self._servers[host, port] = server = _Server(self, factory, (host, port))
        return server

    async def connect(self, factory: Factory, host: str, port: int) -> tuple[asyncio.Transport, asyncio.Protocol]:
        process = current_process()
        await asyncio.sleep(self.delay_s())
        if self.is_cut(process.host, host) or self.is_cut(host, process.host):
            await self.loop.create_future()
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        ours = _End(self, process, process.context(), (host, port))
        theirs = _End(self, server.process, server.process.context(), (process.host, 0))
        ours.other, theirs.other = theirs, ours
        self._ends += [ours, theirs]
        theirs.attach(server.factory)
        protocol = factory()
        ours.protocol = protocol
        protocol.connection_made(ours)
        return ours, protocol

    def close_server(self, server: "_Server") -> None:
        self._servers.pop(server.address, None)

    def forget(self, end: "_End") -> None:
        if end in self._ends:
            self._ends.remove(end)

    def delay_s(self) -> float:
        return self.rng.uniform(*self.latency_s)


def current_process() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a process of the simulated world uses its network"
    return process


class _Server:
    """Stands for an asyncio.Server, and for its one socket."""

    def __init__(self, network: Network, factory: Factory, address: tuple[str, int]) -> None:
        self._network, self.factory, self.address = network, factory, address
        self.process = current_process()
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self._network.close_server(self)


class _End(asyncio.Transport):
    """One end of a connection. What is written here is read at `other`."""

    def __init__(self, network: Network, process: Process, context: Context, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.process, self._network, self._context = process, network, context
        self.other: _End
        self.protocol: asyncio.Protocol | None = None
        self._undelivered: deque[bytes | None] = deque()
        """In order; None for the end of the stream."""
        self._on_the_way = 0
        """So many of these have left. A cut takes all of them back."""
        self._cuts_met = 0
        self._arrives_at_s = 0.0
        self._is_lost = self._is_closing = False

    def attach(self, factory: Factory) -> None:
        """Have the side that was dialled notice it."""

        def accept() -> None:
            self.protocol = factory()
            self.protocol.connection_made(self)

        self._in_process(accept)

    def write(self, data: Any) -> None:
        if not (self._is_closing or self._is_lost):
            self._undelivered.append(bytes(data))
            self.flush()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._undelivered.append(None)
            self.flush()
            self.lose(None)

    def abort(self) -> None:
        self._is_closing = True
        self.lose(None)
        self._network.loop.call_at(self._network.loop.time() + self._network.delay_s(), self.other.lose, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return sum(len(data) for data in self._undelivered if data is not None)

    def flush(self) -> None:
        """Send on its way what may go."""
        if self._network.is_cut(self.process.host, self.other.process.host):
            return
        loop = self._network.loop
        while self._on_the_way < len(self._undelivered):
            self._on_the_way += 1
            self._arrives_at_s = max(loop.time() + self._network.delay_s(), self._arrives_at_s + 1e-6)
            loop.call_at(self._arrives_at_s, self._arrive, self._cuts_met, context=Context())

    def lose(self, error: Exception | None) -> None:
        """The connection is no more, for this end."""
        if not self._is_lost:
            self._is_lost = True
            self._network.forget(self)
            self._in_process(lambda: self._tell_lost(error))

    def _arrive(self, cuts_met: int) -> None:
        if cuts_met != self._cuts_met:
            return
        if self._network.is_cut(self.process.host, self.other.process.host):
            self._cuts_met += 1
            self._on_the_way = 0
            return
        self._on_the_way -= 1
        data = self._undelivered.popleft()
        if data is None:
            self.other.lose(None)
        elif not self.other._is_lost:
            self.other._in_process(lambda: self.other._tell_received(data))

    def _tell_lost(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def _tell_received(self, data: bytes) -> None:
        if self.protocol is not None:
            self.protocol.data_received(data)

    def _in_process(self, step: Callable[[], object]) -> None:
        self._network.loop.call_soon(step, context=self._context)
