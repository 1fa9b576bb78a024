"""The simulator's Kafka client: its connections, the order of its requests, and responses that are not due."""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.kafka import REFRESH_S, NoAnswer, PipelinedConnection, SimulatedClient, message
from cordwood.chaos.sim.network import SimulatedNetwork
from cordwood.cluster.kafka.api_keys import ApiKey

BROKER = "broker", 9092


def heartbeat(generation: int) -> Any:
    return message(ApiKey.HEARTBEAT, group_id="g", generation_id=generation, member_id="m", group_instance_id=None)


HEARTBEAT: Any = heartbeat(1)
ALIVE = b"\x00" + bytes(4 + 2) + b"\x00"
"""A response after its correlation id: no tagged fields, throttle time, error code, no tagged fields."""


class Sent(asyncio.Transport):
    """A transport that keeps nothing."""

    def write(self, _data: object) -> None:
        """Drop the bytes."""


def opened() -> PipelinedConnection:
    connection = PipelinedConnection("me")
    connection.connection_made(Sent())
    return connection


def response(correlation_id: int) -> bytes:
    frame = correlation_id.to_bytes(4, "big") + ALIVE
    return len(frame).to_bytes(4, "big") + frame


def test_a_request_without_an_open_connection_has_no_answer() -> None:
    async def scenario() -> None:
        connection = opened()
        asked = connection.ask(HEARTBEAT)
        connection.connection_lost(None)
        with pytest.raises(NoAnswer):
            await asked
        with pytest.raises(NoAnswer):
            connection.ask(HEARTBEAT)

    simulated.run(scenario())


def test_responses_out_of_order_are_a_fault_of_the_broker() -> None:
    async def scenario() -> None:
        connection = opened()
        first, second = connection.ask(HEARTBEAT), connection.ask(HEARTBEAT)
        connection.data_received(response(1)[:5])
        connection.data_received(response(1)[5:])
        assert int((await first).error_code) == 0
        assert not second.done()
        connection.ask(HEARTBEAT)
        with pytest.raises(AssertionError, match="a response to request 3 where request 2 is due"):
            connection.data_received(response(3))

    simulated.run(scenario())


class Broker(asyncio.Protocol):
    """A broker that answers nothing. It records the generation of each heartbeat."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self.connections = 0
        self.generations: list[int] = []
        self.on_connection: Callable[[], None] = lambda: None

    async def listen(self) -> None:
        async def listening() -> None:
            self._network.listen(lambda: self, *BROKER)

        await asyncio.get_running_loop().create_task(listening(), context=simulated.Process(BROKER[0]).context())

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        self.connections += 1
        self.on_connection()

    def data_received(self, data: bytes) -> None:
        """Read the generation, which stands before the member id and two bytes of 0."""
        self.generations.append(int.from_bytes(data[-8:-4]))


class Dialler:
    """A client of one broker, on a host of its own."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, simulated.SimulatedLoop)
        self.loop, self.network = loop, SimulatedNetwork(loop, random.Random(1))
        self.broker = Broker(self.network)
        self.client = SimulatedClient("me", "topic", [BROKER], random.Random(1))
        self.context: Context = simulated.Process("client").context()

    def tell(self, generation: int) -> "asyncio.Task[None]":
        """Send a heartbeat as a task of the client."""
        return self.loop.create_task(self.client.tell(BROKER, heartbeat(generation)), context=self.context)

    def tell_at_once(self, generation: int) -> None:
        """Send a heartbeat in the current step."""
        telling = self.client.tell(BROKER, heartbeat(generation))
        with pytest.raises(StopIteration):
            self.context.run(telling.send, None)


def test_requests_are_sent_in_their_order_whether_or_not_the_connection_is_open() -> None:
    async def scenario() -> None:
        dialler = Dialler()
        await dialler.broker.listen()
        dialler.broker.on_connection = lambda: dialler.tell_at_once(4)
        first, cancelled, third = map(dialler.tell, (1, 2, 3))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(first, third)
        await dialler.tell(5)
        await asyncio.sleep(0.1)
        assert dialler.broker.generations == [1, 3, 4, 5]
        assert dialler.broker.connections == 1

    simulated.run(scenario())


def test_requests_fail_and_are_not_sent_if_no_process_listens() -> None:
    async def scenario() -> None:
        dialler = Dialler()
        refused = await asyncio.gather(dialler.tell(1), dialler.tell(2), return_exceptions=True)
        assert [type(error) for error in refused] == [OSError, OSError]
        await dialler.broker.listen()
        await dialler.tell(3)
        await asyncio.sleep(0.1)
        assert dialler.broker.generations == [3]

    simulated.run(scenario())


def test_metadata_is_refreshed_less_often_while_no_broker_answers() -> None:
    async def scenario() -> None:
        dialler = Dialler()
        pauses_s = []
        for _ in range(6):
            began_s = dialler.loop.time()
            await dialler.loop.create_task(dialler.client.refresh_patiently(), context=dialler.context)
            pauses_s.append(dialler.loop.time() - began_s)
        assert pauses_s[0] < REFRESH_S + 0.01
        assert all(0.4 < pause_s < 0.81 for pause_s in pauses_s[3:])

    simulated.run(scenario())
