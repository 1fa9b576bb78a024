"""A simulated TCP network: listening and connecting hosts, with latency, partitions, slow links and resets per link.

Data sent into a cut link arrives, in order, after the link is restored, unless a side gave up before. A connection
attempt into a cut link waits.
"""

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.chaos.sim.connection import End
from cordwood.chaos.sim.loop import PROCESS, Process, SimulatedLoop

Factory = Callable[[], asyncio.BaseProtocol]

OnDialled = Callable[[OSError | None], None]
"""Called with None once the connection is open, or with the error."""

Way = tuple[str, str]
"""One direction of a link: source host and target host."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """A slow link: a factor on the latency, and a bandwidth limit."""

    latency_factor: float
    bytes_per_second: float


class SimulatedNetwork:
    """The network of one SimulatedLoop. Equal seeds and calls give equal runs."""

    def __init__(
        self, loop: SimulatedLoop, rng: random.Random, latency_s: tuple[float, float] = (0.0002, 0.003)
    ) -> None:
        self.loop, self.rng, self.latency_s = loop, rng, latency_s
        loop.network = self
        self.split_share = 0.0
        """The share of writes that arrive in two parts."""
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._ends: dict[End, None] = {}
        self._cuts: dict[Way, int] = {}
        self._cut_count = 0
        self.has_cuts = False
        self._slow: dict[Way, Slowness] = {}
        self.has_slow_links = False
        self._dark: set[str] = set()

    def cut(self, one: str, other: str) -> None:
        """Cut a link in both directions."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: str, target: str) -> None:
        self._cut_count += 1
        self._cuts[source, target] = self._cut_count
        self.has_cuts = True
        for end in self._ends:
            if end.keep_alive_s is not None and {end.process.host, end.other.process.host} == {source, target}:
                due_s = self.loop.passed_s + end.keep_alive_s
                self.loop.call_at(due_s, self._give_up, end, (source, target), self._cut_count, context=end.outside)

    def slow_down(self, one: str, other: str, slowness: Slowness) -> None:
        self._slow[one, other] = self._slow[other, one] = slowness
        self.has_slow_links = True

    def heal(self, *hosts: str) -> None:
        """End all cuts and slowness, or those between these hosts. Delayed data then arrives."""
        self._cuts = {way: number for way, number in self._cuts.items() if hosts and not set(way) <= set(hosts)}
        self._slow = {way: slowness for way, slowness in self._slow.items() if hosts and not set(way) <= set(hosts)}
        self.has_cuts, self.has_slow_links = bool(self._cuts), bool(self._slow)
        for end in list(self._ends):
            end.flush()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def disconnect(self, one: str, other: str) -> None:
        """Reset the connections between two hosts. Both sides notice."""
        for end in list(self._ends):
            if {end.process.host, end.other.process.host} == {one, other}:
                end.abort()

    def kill(self, process: Process, *, silently: bool = False) -> None:
        """Kill a process. Its host resets the process's connections, unless the host loses power (`silently`)."""
        process.is_alive = False
        self._servers = {at: server for at, server in self._servers.items() if server.process is not process}
        if silently:
            self._dark.add(process.host)
        for end in [end for end in self._ends if end.process is process]:
            del self._ends[end]
            if not silently:
                end.other.lose(ConnectionResetError())
            elif end.other.keep_alive_s is not None:
                due_s = self.loop.passed_s + end.other.keep_alive_s
                self.loop.call_at(due_s, end.other.lose, TimeoutError(), context=end.outside)

    def power_on(self, host: str) -> None:
        """Power on a host. The host answers again, and resets the connections of its former processes."""
        self._dark.discard(host)
        for end in list(self._ends):
            if end.other.process.host == host and not end.other.process.is_alive:
                due_s = self.loop.passed_s + self.delay_s(host, end.process.host)
                self.loop.call_at(due_s, end.lose, ConnectionResetError(), context=end.outside)

    def listen(self, factory: Factory, host: str, port: int, start_serving: bool = True) -> "SimulatedServer":
        if current_process().host != host:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is another machine")
        if (host, port) in self._servers:
            raise OSError(98, f"{host}:{port} is in use")
        if host in self._dark:
            self.power_on(host)
        self._servers[host, port] = server = SimulatedServer(self, factory, (host, port), start_serving)
        return server

    async def connect(self, factory: Factory, host: str, port: int) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(self.delay_s(current_process().host, host))
        if not self._answers(host):
            await self.loop.create_future()
        return self._open(factory, host, port)

    def dial(self, protocol: asyncio.BaseProtocol, address: tuple[str, int], timeout_s: float, done: OnDialled) -> None:
        """Connect within a time, and call `done`: cheaper than a task that waits for `connect`."""
        loop, until_s = self.loop, self.loop.time() + timeout_s

        def late() -> None:
            done(TimeoutError("no process accepted the connection"))

        def arrived() -> None:
            if not self._answers(address[0]):
                loop.call_at(until_s, late)
                return
            try:
                self._open(lambda: protocol, *address)
            except OSError as refused:
                done(refused)
            else:
                done(None)

        delay_s = self.delay_s(current_process().host, address[0])
        if delay_s < timeout_s:
            loop.call_later(delay_s, arrived)
        else:
            loop.call_at(until_s, late)

    def _answers(self, host: str) -> bool:
        """Return whether the host answers this process, if only with a refusal."""
        here = current_process().host
        is_cut = self.has_cuts and (self.is_cut(here, host) or self.is_cut(host, here))
        return not is_cut and host not in self._dark

    def _open(self, factory: Factory, host: str, port: int) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection of this process. Raises ConnectionRefusedError."""
        process, server = current_process(), self._servers.get((host, port))
        if server is None or not server.is_serving:
            raise ConnectionRefusedError(111, f"no listener at {host}:{port}")
        ours = End(self, process, process.context(), (host, port))
        theirs = End(self, server.process, server.process.context(), (process.host, 0))
        ours.other, theirs.other = theirs, ours
        self._ends |= {ours: None, theirs: None}
        theirs.attach(server.factory)
        ours.protocol = factory()
        ours.protocol.connection_made(ours)
        return ours, ours.protocol

    def close_server(self, server: "SimulatedServer") -> None:
        self._servers.pop(server.address, None)

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    def delay_s(self, source: str, target: str) -> float:
        """Return a random latency for the next bytes between two hosts."""
        least_s, most_s = self.latency_s
        delay_s = least_s + (most_s - least_s) * self.rng.random()
        slowness = self._slow.get((source, target)) if self._slow else None
        return delay_s if slowness is None else delay_s * slowness.latency_factor

    def transfer_s(self, source: str, target: str, length: int) -> float:
        """Return the time for which the link is busy with this number of bytes."""
        slowness = self._slow.get((source, target)) if self._slow else None
        return 0.0 if slowness is None else length / slowness.bytes_per_second

    def _give_up(self, end: End, way: Way, cut: int) -> None:
        """Close the connection after its TCP keepalive probes went unanswered."""
        if self._cuts.get(way) == cut:
            end.lose(TimeoutError(110, "the peer does not answer"))


def current_process() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a process of the simulated world uses its network"
    return process


class SimulatedServer:
    """A stand-in for an asyncio.Server and its one socket."""

    def __init__(self, network: SimulatedNetwork, factory: Factory, address: tuple[str, int], is_serving: bool) -> None:
        self._network, self.factory, self.address, self.is_serving = network, factory, address, is_serving
        self.process = current_process()
        self.sockets = [self]

    async def start_serving(self) -> None:
        self.is_serving = True

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def close(self) -> None:
        self._network.close_server(self)
