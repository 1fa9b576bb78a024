"""Frames of a leader that are handled in steps: later ones wait, and a step that fails ends the connection."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from quorum_fixture import run_here

from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.loop import run as run_simulated
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.peers import Peers
from cordwood.replication.frames import MalformedFrame, PushKind, PushRow, encode_push
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.steps import Steps

HOST, PORT = "broker-2", 9092
STEPS = 5
LARGE_BYTES = 300_000
"""More than one read of the connection, so that the buffer would be used again."""


def push(stream: int, data: bytes = b"") -> bytes:
    return encode_push([PushRow(stream, PushKind.DATA, 0, 0, len(data))], len(data)) + data


class Leader(asyncio.Protocol):
    """A broker that sends what the test writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class Follower:
    """A connection to a leader, whose first frame is handled in steps."""

    def __init__(self, error: Exception | None = None) -> None:
        """`error` is raised by the last of the steps."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        network = SimulatedNetwork(loop, random.Random(1))
        self.leaders: list[Leader] = []
        Process(HOST).context().run(network.listen, self._accept, HOST, PORT)
        self.peers = Peers(EndOfTickScheduler(loop), run_here, run_here, random.Random(1))
        self.seen: list[bytes] = []
        """What each step of the first frame finds in it, and every other frame."""
        self.has_begun, self.has_ended = asyncio.Event(), False
        self._error = error

    async def dial(self) -> Connection:
        connection: Any = await self.peers.dial(HOST, PORT, self._received)
        while not self.leaders:
            await asyncio.sleep(0.001)
        return connection  # type: ignore[no-any-return]

    def _accept(self) -> Leader:
        self.leaders.append(Leader())
        return self.leaders[-1]

    def _received(self, frame: memoryview) -> Steps[None] | None:
        if self.seen:
            self.seen.append(bytes(frame))
            return None
        steps = self._steps(frame)
        next(steps)
        self.has_begun.set()
        return steps

    def _steps(self, frame: memoryview) -> Steps[None]:
        try:
            for _ in range(STEPS - 1):
                self.seen.append(bytes(frame))
                yield
            if self._error is not None:
                raise self._error
            self.seen.append(bytes(frame))
        finally:
            self.has_ended = True


def run(story: Callable[[], Any]) -> None:
    async def reported() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_task(asyncio.wait_for(story(), 600), context=Process("broker-1").context())

    run_simulated(reported())


def test_the_next_frames_wait_for_the_last_step_and_the_frame_stays_as_it_is() -> None:
    async def story() -> None:
        follower = Follower()
        connection = await follower.dial()
        sent = [push(1, b"a" * LARGE_BYTES), *(push(stream, bytes([stream]) * 1000) for stream in range(2, 200))]
        follower.leaders[0].transport.write(b"".join(sent))
        await asyncio.sleep(5)
        assert follower.seen == [sent[0][4:]] * STEPS + [frame[4:] for frame in sent[1:]]
        assert connection.is_open
        assert not connection.received.is_frozen

    run(story)


@pytest.mark.parametrize("error", [MalformedFrame("a row of kind 9"), ValueError("a bug")])
def test_a_step_that_fails_ends_the_connection(error: Exception) -> None:
    async def story() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        follower = Follower(error)
        connection = await follower.dial()
        follower.leaders[0].transport.write(push(1) + push(2))
        await asyncio.sleep(1)
        assert follower.seen == [push(1)[4:]] * (STEPS - 1), "the frame after it is not handled"
        assert not connection.is_open
        assert reported == ([error] if isinstance(error, ValueError) else [])

    run(story)


def test_no_step_is_made_after_the_broker_has_closed_its_connections() -> None:
    async def story() -> None:
        follower = Follower()
        await follower.dial()
        follower.leaders[0].transport.write(push(1))
        await follower.has_begun.wait()
        await follower.peers.close()
        assert follower.has_ended
        assert len(follower.seen) < STEPS

    run(story)


def test_no_frame_is_handled_after_one_whose_steps_were_given_up() -> None:
    """Its batches would be appended after the ones that are missing: in a compacted log a gap is no error."""

    async def story() -> None:
        follower = Follower()
        connection = await follower.dial()
        follower.leaders[0].transport.write(push(1) + push(2))
        await follower.has_begun.wait()
        await asyncio.sleep(0)
        await follower.peers.close()
        await asyncio.sleep(1)
        assert 1 < len(follower.seen) < STEPS, "the task had begun"
        assert set(follower.seen) == {push(1)[4:]}
        assert not connection.is_open

    run(story)
