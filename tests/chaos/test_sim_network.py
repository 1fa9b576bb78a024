"""The simulated event loop and network: virtual time, ordered delivery, cuts, and dead or paused processes."""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cordwood.chaos.sim.loop import Process, SimulatedLoop, run
from cordwood.chaos.sim.network import SimulatedNetwork, Slowness


class Ear(asyncio.Protocol):
    """A protocol that records what it receives."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.lost = self.is_held_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def pause_writing(self) -> None:
        self.is_held_up = True

    def resume_writing(self) -> None:
        self.is_held_up = False

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True


class World:
    """Two hosts on a simulated network: "a" connects to "b"."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop, self.network = loop, SimulatedNetwork(loop, random.Random(1))
        self.a, self.b = Process("a"), Process("b")
        self.caller, self.called = Ear(), Ear()

    async def connect(self) -> "World":
        await self.as_process(self.b, self.loop.create_server(lambda: self.called, "b", 1))
        await self.as_process(self.a, self.loop.create_connection(lambda: self.caller, "b", 1))
        await asyncio.sleep(0)
        return self

    async def as_process(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        await self.loop.create_task(work, context=process.context())


def tell(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def reported() -> None:
        await scenario(await World().connect())

    run(reported())


def test_an_hour_passes_at_once() -> None:
    async def scenario(world: World) -> None:
        began_at_s = world.loop.time()
        await asyncio.sleep(3600)
        assert world.loop.time() - began_at_s == pytest.approx(3600)

    tell(scenario)


def test_what_is_sent_arrives_in_order() -> None:
    async def scenario(world: World) -> None:
        words = [str(number).encode() for number in range(100)]
        for word in words:
            world.caller.transport.write(word)
        assert world.called.heard == []
        await asyncio.sleep(1)
        assert world.called.heard == words

    tell(scenario)


def test_a_cut_holds_up_one_direction_and_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        world.caller.transport.write(b"before")
        world.network.cut_one_way("a", "b")
        world.caller.transport.write(b"meanwhile")
        world.called.transport.write(b"back")
        await asyncio.sleep(100)
        assert (world.called.heard, world.caller.heard) == ([], [b"back"])
        world.network.heal()
        await asyncio.sleep(1)
        assert world.called.heard == [b"before", b"meanwhile"]

    tell(scenario)


def test_who_dials_into_a_cut_waits() -> None:
    async def scenario(world: World) -> None:
        world.network.cut("a", "b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await world.as_process(world.a, world.loop.create_connection(Ear, "b", 1))

    tell(scenario)


def test_a_broken_connection_is_noticed_at_both_ends() -> None:
    async def scenario(world: World) -> None:
        world.network.disconnect("a", "b")
        await asyncio.sleep(1)
        assert world.caller.lost
        assert world.called.lost

    tell(scenario)


@pytest.mark.parametrize("silently", [False, True])
def test_a_dead_process_runs_nothing_and_its_host_may_say_so(silently: bool) -> None:
    async def scenario(world: World) -> None:
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(1)
                done.append("work")
            finally:
                done.append("finally")

        world.loop.create_task(work(), context=world.b.context())
        await asyncio.sleep(0.5)
        world.network.kill(world.b, silently=silently)
        world.caller.transport.write(b"hello?")
        await asyncio.sleep(10)
        assert done == []
        assert world.called.heard == []
        assert world.caller.lost is not silently
        with pytest.raises(TimeoutError if silently else ConnectionRefusedError):
            async with asyncio.timeout(60):
                await world.as_process(world.a, world.loop.create_connection(Ear, "b", 1))

    tell(scenario)


def test_a_paused_process_does_everything_later() -> None:
    async def scenario(world: World) -> None:
        world.loop.pause(world.b)
        world.caller.transport.write(b"are you there?")
        await asyncio.sleep(20)
        assert world.called.heard == []
        world.loop.resume(world.b)
        await asyncio.sleep(0.1)
        assert world.called.heard == [b"are you there?"]

    tell(scenario)


def test_a_clock_that_goes_too_fast_wakes_its_process_early() -> None:
    async def scenario(world: World) -> None:
        hasty = Process("a", clock_rate=1.25)
        woken_at_s: list[float] = []

        async def sleep_ten_seconds() -> None:
            await asyncio.sleep(10)
            woken_at_s.append(world.loop.passed_s)

        began_s = world.loop.passed_s
        await world.as_process(hasty, sleep_ten_seconds())
        assert woken_at_s == [pytest.approx(began_s + 8)]

    tell(scenario)


def test_a_system_that_probes_gives_up_a_silent_peer() -> None:
    async def scenario(world: World) -> None:
        probed = world.caller.transport.get_extra_info("socket")
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
            probed.setsockopt(socket.IPPROTO_TCP, option, 2)
        world.network.cut("a", "b")
        await asyncio.sleep(5.9)
        assert not world.caller.lost
        await asyncio.sleep(0.2)
        assert world.caller.lost
        assert not world.called.lost

    tell(scenario)


def test_a_slow_line_takes_its_time_for_many_bytes() -> None:
    async def scenario(world: World) -> None:
        world.network.slow_down("a", "b", Slowness(latency_factor=1, bytes_per_second=1000))
        for _ in range(10):
            world.caller.transport.write(bytes(1000))
        await asyncio.sleep(5)
        assert 3 <= len(world.called.heard) <= 6
        await asyncio.sleep(6)
        assert len(world.called.heard) == 10

    tell(scenario)


def test_a_writer_waits_for_a_reader_that_reads_nothing() -> None:
    async def scenario(world: World) -> None:
        world.called.transport.pause_reading()
        world.caller.transport.write(bytes(100 << 10))
        await asyncio.sleep(1)
        assert world.caller.is_held_up
        assert world.called.heard == []
        world.called.transport.resume_reading()
        await asyncio.sleep(1)
        assert not world.caller.is_held_up
        assert len(world.called.heard) == 1

    tell(scenario)


@pytest.mark.parametrize("is_cut", [True, False], ids=["no answer", "no listener"])
def test_a_dial_ends_with_an_error_at_its_timeout_or_at_once(is_cut: bool) -> None:
    async def scenario(world: World) -> None:
        if is_cut:
            world.network.cut("a", "b")
        ended: list[OSError | None] = []
        world.a.context().run(world.network.dial, Ear(), ("b", 1 if is_cut else 2), 1.0, ended.append)
        await asyncio.sleep(0.99)
        assert bool(ended) is not is_cut
        await asyncio.sleep(0.02)
        assert [type(error) for error in ended] == [TimeoutError if is_cut else ConnectionRefusedError]

    tell(scenario)
