"""The simulator's Kafka client: its broker may not send a response that is not due."""

import asyncio
from typing import Any

import pytest

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.kafka import NoAnswer, PipelinedConnection, message
from cordwood.cluster.kafka.api_keys import ApiKey

HEARTBEAT: Any = message(ApiKey.HEARTBEAT, group_id="g", generation_id=1, member_id="m", group_instance_id=None)
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
        with pytest.raises(NoAnswer):
            PipelinedConnection("me").ask(HEARTBEAT)
        connection = opened()
        asked = connection.ask(HEARTBEAT)
        connection.connection_lost(None)
        with pytest.raises(NoAnswer):
            await asked

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
