"""Request limits: oversized requests are refused at their first bytes, and fields have a maximum number and length."""

import asyncio
import struct
from typing import Any, NoReturn

import pytest

from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import is_flexible, read_head
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.fetch_request import read_fetch
from cordwood.cluster.kafka.in_process import InProcess, InProcessChannel
from cordwood.cluster.kafka.produce_request import TOPIC_NAME_CHARS_MAX, read_produce
from cordwood.cluster.kafka.receive_buffer import BUFFER_BYTES_MIN
from cordwood.cluster.kafka.wire import OTHER_BYTES_MAX, STRING_BYTES_MAX, TAGS_MAX, Malformed, uvarint
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.errors import DamagedLog
from cordwood.storage.steps import Steps, at_once

REQUEST_BYTES_MAX = 100 << 20
OPEN = 1000
"""The API key of a follower's introduction (`replication/frames.py`)."""


def unwanted(*_: Any) -> NoReturn:
    raise AssertionError("nothing is handled, read or answered")


async def sent(*pieces: bytes) -> tuple[InProcess, InProcessChannel]:
    """Return the in-process server and the connection of a client that has sent these pieces."""

    async def run_blocking(*_: Any) -> NoReturn:
        unwanted()

    def damaged(_: DamagedLog) -> None:
        unwanted()

    def handle(_connection: Connection, _frame: memoryview, _slot: Slot) -> None:
        unwanted()

    here = InProcess(EndOfTickScheduler(asyncio.get_running_loop()), run_blocking, damaged, REQUEST_BYTES_MAX)
    channel = here.open("test", handle, unwanted)
    for piece in pieces:
        channel.push([piece])
        await asyncio.sleep(0)
    return here, channel


@pytest.mark.parametrize("key", [*(key for key in ApiKey if key != ApiKey.PRODUCE), OPEN])
def test_a_request_that_is_too_large_for_its_api_is_refused_at_its_first_bytes(key: int) -> None:
    async def story() -> None:
        size = struct.pack(">i", OTHER_BYTES_MAX + 1)
        here, channel = await sent(size, struct.pack(">h", key))
        assert not channel.is_open
        assert here.memory.pools.receive.used == 0

    asyncio.run(story())


@pytest.mark.parametrize(
    ("size", "key"), [(REQUEST_BYTES_MAX, ApiKey.PRODUCE), (OTHER_BYTES_MAX, ApiKey.FETCH), (OTHER_BYTES_MAX, OPEN)]
)
def test_a_request_of_the_size_that_is_taken_goes_on_arriving(size: int, key: int) -> None:
    async def story() -> None:
        _, channel = await sent(struct.pack(">ih", size, key), bytes(2 * BUFFER_BYTES_MIN))
        assert channel.is_open

    asyncio.run(story())


def read(key: int, version: int, body: bytes) -> Any:
    frame = memoryview(struct.pack(">hhih", key, version, 7, -1) + b"\x00" + body)
    head = read_head(frame, is_flexible)
    steps: Steps[Any] = read_produce(head, frame) if key == ApiKey.PRODUCE else read_fetch(head, frame)
    return at_once(steps)


def tags(count: int) -> bytes:
    return uvarint(count) + b"\x05\x00" * count


def string(size: int) -> bytes:
    return uvarint(size + 1) + b"x" * size


def fetch_of(topic: bytes, tagged: bytes) -> bytes:
    return struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + b"\x02" + topic + b"\x01" + tagged + b"\x01\x01\x00"


def produce_of(topic: bytes, tagged: bytes) -> bytes:
    return b"\x00" + struct.pack(">hi", -1, 0) + b"\x02" + topic + b"\x01" + tagged + b"\x00"


REQUESTS = {"fetch": (ApiKey.FETCH, 12, fetch_of), "produce": (ApiKey.PRODUCE, 9, produce_of)}


@pytest.fixture(params=REQUESTS)
def ask(request: pytest.FixtureRequest) -> Any:
    key, version, body = REQUESTS[request.param]
    return lambda topic, tagged: read(key, version, body(topic, tagged))


def test_unknown_tagged_fields_are_skipped(ask: Any) -> None:
    assert ask(string(TOPIC_NAME_CHARS_MAX), tags(TAGS_MAX))


def test_a_structure_of_very_many_tagged_fields_is_refused(ask: Any) -> None:
    with pytest.raises(Malformed, match="tagged fields"):
        ask(string(1), tags(TAGS_MAX + 1))


def test_a_string_that_is_longer_than_any_of_kafkas_is_refused(ask: Any) -> None:
    with pytest.raises(Malformed, match="a string of"):
        ask(string(STRING_BYTES_MAX + 1), tags(0))
