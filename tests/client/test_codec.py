"""The client codec: requests to frames, and received bytes to responses, however the network cuts them."""

import io
import struct
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TopicData, TransactionState
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v1.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v1.response import FindCoordinatorResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer

from cordwood.client.codec import (
    BUFFER_BYTES,
    BadFrameLength,
    BadResponse,
    ClientCodec,
    IncompleteResponse,
    ResponseFrames,
    UnknownCorrelationId,
)

FRAME_BYTES_MAX = 10_000
NO_WAIT = timedelta(0)

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
ALIVE = HeartbeatResponse(throttle_time=NO_WAIT, error_code=ErrorCode.none)
FIND = FindCoordinatorRequest(key="g", key_type=0)
FOUND = FindCoordinatorResponse(
    throttle_time=NO_WAIT,
    error_code=ErrorCode.none,
    error_message="é" * 3000,
    node_id=BrokerId(3),
    host="h" * 3000,
    port=9092,
)
VERSIONS = ApiVersionsRequest(client_software_name="c", client_software_version="1")
SERVED = ApiVersionsResponse(
    error_code=ErrorCode.none,
    api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),),
    throttle_time=NO_WAIT,
)
EXCHANGES = ((HEARTBEAT, ALIVE), (FIND, FOUND), (VERSIONS, SERVED), (HEARTBEAT, ALIVE))
"""A response header with tagged fields, one without, and that of ApiVersions, which never has them."""


def body(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def answer(correlation_id: int, message: Any) -> bytes:
    """Return the frame of a response."""
    head = correlation_id.to_bytes(4, "big")
    if type(message).__flexible__ and not isinstance(message, ApiVersionsResponse):
        head += b"\x00"
    frame = head + body(message)
    return len(frame).to_bytes(4, "big") + frame


class Talk:
    """A codec with requests in flight: one for each of EXCHANGES, whose waiter is its number."""

    def __init__(self, exchanges: Sequence[tuple[Any, Any]] = EXCHANGES) -> None:
        self.codec = ClientCodec[int]("me", ResponseFrames(FRAME_BYTES_MAX))
        self.requests = [self.codec.encode(request, number) for number, (request, _) in enumerate(exchanges)]
        self.answers = [answer(number, message) for number, (_, message) in enumerate(exchanges, 1)]
        self.got: list[tuple[int, Any]] = []

    def feed(self, *pieces: bytes) -> "Talk":
        for piece in pieces:
            self.got.extend(self.codec.feed(piece))
        return self

    def check_all(self) -> None:
        assert self.got == [(number, message) for number, (_, message) in enumerate(EXCHANGES)]
        assert self.codec.is_idle


@pytest.mark.parametrize("client_id", ["me", "", None])
@pytest.mark.parametrize("request_", [HEARTBEAT, FIND, VERSIONS], ids=lambda request: type(request).__name__)
def test_a_request_has_the_header_of_its_version(request_: Any, client_id: str | None) -> None:
    codec = ClientCodec[None](client_id)
    for correlation_id in (1, 2):
        frame = codec.encode(request_, None)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, at = entity_reader(type(request_).__header_schema__)(frame, 4)
        assert (header.request_api_key, header.request_api_version) == (
            type(request_).__api_key__,
            type(request_).__version__,
        )
        assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
        schema = load_request_schema(header.request_api_key, header.request_api_version)
        assert entity_reader(schema)(frame, 4 + at)[0] == request_


def test_a_request_whose_body_is_encoded_elsewhere_is_the_same() -> None:
    for request in (HEARTBEAT, FIND, VERSIONS):
        codec, encoded = ClientCodec[str]("me"), ClientCodec[str]("me").encode(request, "")
        assert b"".join(codec.frame(request, [body(request)[:3], body(request)[3:]], "")) == encoded
        assert not codec.is_idle


def test_responses_that_arrive_together_go_to_their_requests() -> None:
    Talk().feed(b"".join(Talk().answers)).check_all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 4096])
def test_responses_may_arrive_in_pieces(size: int) -> None:
    whole = b"".join(Talk().answers)
    Talk().feed(*(whole[at : at + size] for at in range(0, len(whole), size))).check_all()


def test_responses_may_be_cut_at_every_byte() -> None:
    whole = b"".join(Talk().answers)
    for at in range(len(whole)):
        Talk().feed(whole[:at], whole[at:]).check_all()


def test_a_buffer_is_received_into_at_every_size() -> None:
    whole = b"".join(Talk().answers)
    for size in (1, 7, 4000, len(whole)):
        talk, frames, sent = Talk(), Talk().codec.frames, 0
        while sent < len(whole):
            room = frames.room()
            count = min(size, len(room), len(whole) - sent)
            room[:count] = whole[sent : sent + count]
            frames.received(count)
            sent += count
            while (frame := frames.next()) is not None:
                talk.got.append(talk.codec.take(frame))
        talk.check_all()


def test_a_frame_stays_as_it_is_until_the_next_bytes_are_received() -> None:
    frames, both = ResponseFrames(), answer(1, ALIVE) + answer(2, FOUND)[:50]
    room = frames.room()
    room[: len(both)] = both
    frames.received(len(both))
    first = frames.next()
    assert first is not None
    assert frames.next() is None
    # The rest of the second frame needs a larger buffer.
    assert len(frames.room()) == len(answer(2, FOUND)) - 50
    assert first == answer(1, ALIVE)[4:]


def test_a_request_without_a_response_takes_a_correlation_id_and_waits_for_nothing() -> None:
    codec = ClientCodec[str](None)
    codec.encode_unanswered(HEARTBEAT)
    assert codec.is_idle
    codec.encode(HEARTBEAT, "second")
    assert list(codec.feed(answer(2, ALIVE))) == [("second", ALIVE)]


def test_correlation_ids_begin_again_after_the_largest() -> None:
    codec = ClientCodec[str](None)
    codec._last_id = (1 << 31) - 2
    assert [codec.encode(HEARTBEAT, "")[8:12] for _ in range(2)] == [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"]


@pytest.mark.parametrize(
    ("in_flight", "correlation_id", "due"), [(0, 7, "no request"), (1, 7, "request 1"), (2, 2, "request 1")]
)
def test_a_response_to_another_request_is_an_error(in_flight: int, correlation_id: int, due: str) -> None:
    talk = Talk([(HEARTBEAT, ALIVE)] * in_flight)
    with pytest.raises(UnknownCorrelationId, match=f"a response to request {correlation_id} where {due} is due"):
        talk.feed(answer(correlation_id, ALIVE))


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3, FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_an_impossible_length_is_an_error_at_its_last_byte(length: int) -> None:
    talk = Talk()
    announced = struct.pack(">i", length)
    talk.feed(announced[:3])
    with pytest.raises(BadFrameLength, match=f"a response of {length} bytes"):
        talk.feed(announced[3:])


def test_the_largest_frame_that_is_allowed_arrives() -> None:
    assert list(ResponseFrames(FRAME_BYTES_MAX).feed(struct.pack(">i", FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX))) == [
        bytes(FRAME_BYTES_MAX)
    ]


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00"])
def test_a_frame_without_a_correlation_id_is_an_error(frame: bytes) -> None:
    with pytest.raises(BadFrameLength, match=f"a response of {len(frame)} bytes"):
        Talk().codec.take(memoryview(frame))


def test_a_response_that_ends_early_is_an_error() -> None:
    whole = answer(1, ALIVE)[4:]
    for end in range(4, len(whole)):
        with pytest.raises(BadResponse, match="a malformed response"):
            Talk().codec.take(memoryview(whole)[:end])


def test_the_end_of_a_connection_inside_a_response_is_an_error() -> None:
    whole = answer(1, ALIVE)
    for end in range(len(whole) + 1):
        talk = Talk().feed(whole[:end])
        if end in (0, len(whole)):
            talk.codec.frames.received(0)
            continue
        with pytest.raises(IncompleteResponse, match=f"after {end} bytes"):
            talk.codec.frames.received(0)


def test_requests_in_flight_are_given_back_at_the_end_of_the_connection() -> None:
    talk = Talk().feed(answer(1, ALIVE))
    assert talk.codec.abandon() == [1, 2, 3]
    assert talk.codec.is_idle


def test_the_buffer_of_a_large_response_is_freed_unless_it_is_kept() -> None:
    large = struct.pack(">i", FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX)
    for kept_bytes, left in ((BUFFER_BYTES, BUFFER_BYTES), (1 << 20, len(large))):
        frames = ResponseFrames(kept_bytes=kept_bytes)
        assert len(list(frames.feed(large))) == 1
        assert len(frames.room()) == left


def test_the_buffer_of_a_large_response_is_freed_before_more_bytes_arrive() -> None:
    frames = ResponseFrames()
    large = struct.pack(">i", 900_000) + bytes(900_000)
    tracemalloc.start()
    for frame in frames.feed(large):
        assert len(frame) == 900_000
    del frame
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 100_000
    assert [bytes(frame) for frame in frames.feed(struct.pack(">i", 4) + b"next")] == [b"next"]


def test_a_transaction_without_a_start_is_read() -> None:
    states = tuple(
        TransactionState(
            error_code=ErrorCode.none,
            transactional_id=name,
            transaction_state="Empty",
            transaction_timeout=timedelta(seconds=60),
            transaction_start_time=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=start_ms),
            producer_id=7,
            producer_epoch=0,
            topics=(TopicData(topic="flights", partitions=(1, 2)),),
        )
        for name, start_ms in (("none", -1), ("some", 1_700_000_000_000))
    )
    answer = DescribeTransactionsResponse(throttle_time=NO_WAIT, transaction_states=states)
    codec = ClientCodec[str]("me")
    codec.encode(DescribeTransactionsRequest(transactional_ids=("none", "some")), "mine")
    frame = struct.pack(">i", 1) + b"\x00" + body(answer)
    assert codec.take(memoryview(frame)).message == answer
