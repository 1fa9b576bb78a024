"""The client side of the Kafka wire protocol, without I/O: requests to bytes, received bytes to matched responses.

kio encodes the messages. A transport sends what `ClientCodec.encode` returns, and passes what it receives to `feed`. A
transport that has whole frames passes each to `take`; one that receives into a buffer uses `ResponseFrames`.
"""

import functools
import io
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from kio.index import load_response_schema
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TransactionState
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i64

CORRELATION_ID_MAX = (1 << 31) - 1
FRAME_BYTES_MAX = 128 << 20
"""Twice the maximum decompressed size of a batch. A larger length means that the peer is not a Kafka broker."""
BUFFER_BYTES = 4 << 10
LENGTH_BYTES = 4

_HEAD = struct.Struct(">ihhih")
"""Frame length, API key, version, correlation id, and length of the client id."""
_INT = struct.Struct(">i")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Bytes = bytes | bytearray | memoryview
WaiterT = TypeVar("WaiterT")
_Read = Callable[[memoryview, int], tuple[Any, int]]
"""kio's reader: (frame, position) to (value, size in bytes)."""


class BadResponse(ConnectionError):
    """Bytes of a broker that are not the response that is due. Their connection is of no further use."""


class BadFrameLength(BadResponse):
    """A frame length that is too small for a response, or above the limit."""


class UnknownCorrelationId(BadResponse):
    """A response to no request in flight, or not to the oldest one."""


class IncompleteResponse(BadResponse):
    """The connection ended in the middle of a response."""


class Response(NamedTuple, Generic[WaiterT]):
    """A decoded response, and what was passed to `encode` with its request."""

    waiter: WaiterT
    message: Any


def encode_request(request: Any, correlation_id: int, client_id: bytes | None) -> bytes:
    """Encode a kio request as a frame, with its length."""
    body = encode_body(request)
    return _head(request, correlation_id, client_id, len(body)) + body


def encode_body(request: Any) -> bytes:
    """Encode the fields of a kio request, for `ClientCodec.frame`."""
    schema: Any = type(request)
    body = io.BytesIO()
    _writer(schema)(body, request)
    return body.getvalue()


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id of a response. Raises BadResponse."""
    if len(frame) < _INT.size:
        raise BadFrameLength(f"a response of {len(frame)} bytes")
    number: int = _INT.unpack_from(frame)[0]
    return number


def decode_response(request: type, frame: memoryview) -> Any:
    """Decode the response to a request of this class, without its length. Raises BadResponse.

    The broker is trusted with memory: array lengths are not checked against any bound before they are read.
    """
    read_head, read = _readers(request)
    # kio reads only what cannot change.
    frame = frame.toreadonly()
    try:
        response, _ = read(frame, read_head(frame, 0)[1])
    except Exception as error:
        # kio raises several kinds of errors for invalid bytes.
        raise BadResponse(f"a malformed response: {error}") from error
    return response


def begin_of_response(request: type, frame: memoryview) -> tuple[Any, int]:
    """Return the schema of the response to a request of this class, and the position of its fields in the frame."""
    return _response_schema(request), _readers(request)[0](frame.toreadonly(), 0)[1]


class ResponseFrames:
    """Received bytes, cut into frames without their lengths. A frame is valid until the next bytes arrive.

    A transport receives into `room()` and passes the count to `received`, or passes bytes to `feed`.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, kept_bytes: int = BUFFER_BYTES) -> None:
        """Take the size limit of a frame. A buffer of more than `kept_bytes` is freed after its frame."""
        self._frame_bytes_max, self._kept_bytes = frame_bytes_max, kept_bytes
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0

    def feed(self, data: Bytes) -> Iterator[memoryview]:
        """Add received bytes. Yield each frame that is whole then. Raises BadFrameLength."""
        rest = memoryview(data)
        while rest:
            room = self.room()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.received(count)
            rest = rest[count:]
            yield from iter(self.next, None)

    def next(self) -> memoryview | None:
        """Return the next frame; None if it is not whole yet. Raises BadFrameLength."""
        begin = self._begin + LENGTH_BYTES
        if self._end < begin or self._end < (end := begin + self._length()):
            if self._begin == self._end and len(self._buffer) > self._kept_bytes:
                self._buffer, self._begin, self._end = bytearray(BUFFER_BYTES), 0, 0
            return None
        self._begin = end
        return memoryview(self._buffer)[begin:end]

    def room(self) -> memoryview:
        """Return where to receive the next bytes, after `next` has returned None. Raises BadFrameLength."""
        partial = self._end - self._begin
        wanted = LENGTH_BYTES + self._length() if partial >= LENGTH_BYTES else 0
        size = max(wanted, min(len(self._buffer), self._kept_bytes))
        if size != len(self._buffer) or (partial and self._begin):
            # Never in place: a frame that was returned may still be in use.
            buffer = bytearray(size)
            buffer[:partial] = memoryview(self._buffer)[self._begin : self._end]
            self._buffer = buffer
        self._begin, self._end = 0, partial
        # Not past the end of a frame of known length: what follows would have to be moved.
        return memoryview(self._buffer)[partial : wanted or size]

    def received(self, count: int) -> None:
        """Take the count of bytes that were received into `room()`. Raises IncompleteResponse for 0 inside a frame."""
        if not count and self._begin < self._end:
            partial = self._end - self._begin
            raise IncompleteResponse(f"the broker closed the connection after {partial} bytes of a response")
        self._end += count

    def _length(self) -> int:
        length: int = _INT.unpack_from(self._buffer, self._begin)[0]
        if not _INT.size <= length <= self._frame_bytes_max:
            raise BadFrameLength(f"a response of {length} bytes was announced")
        return length


class ClientCodec(Generic[WaiterT]):
    """The requests in flight on one connection, each with an object that its sender gets back with the response.

    A broker responds in the order of requests. After BadResponse the connection has to be closed.
    """

    def __init__(
        self,
        client_id: str | None,
        frames: ResponseFrames | None = None,
        decode: Callable[[type, memoryview], Any] = decode_response,
        last_id: int = 0,
    ) -> None:
        """`decode` returns the response to a request of a class, from its frame, and raises BadResponse.

        The first request gets the correlation id after `last_id`.
        """
        self.frames = frames or ResponseFrames()
        self._decode = decode
        self._client_id = None if client_id is None else client_id.encode()
        self._in_flight: deque[tuple[int, type, WaiterT]] = deque()
        self._last_id = last_id

    @property
    def is_idle(self) -> bool:
        """True if every request has its response."""
        return not self._in_flight

    def encode(self, request: Any, waiter: WaiterT) -> bytes:
        """Return the frame of a kio request. `waiter` is returned with the response."""
        frame = self.encode_unanswered(request)
        self._in_flight.append((self._last_id, type(request), waiter))
        return frame

    def frame(self, request: Any, body: Sequence[bytes], waiter: WaiterT) -> list[bytes]:
        """Return the frame of a kio request whose fields are encoded in `body`, which is not copied."""
        self._next()
        self._in_flight.append((self._last_id, type(request), waiter))
        return [_head(request, self._last_id, self._client_id, sum(map(len, body))), *body]

    def encode_unanswered(self, request: Any) -> bytes:
        """Return the frame of a kio request that has no response, such as a Produce with acks=0."""
        self._next()
        return encode_request(request, self._last_id, self._client_id)

    def feed(self, data: Bytes) -> Iterator[Response[WaiterT]]:
        """Add received bytes. Yield each response that is whole then. Raises BadResponse."""
        return map(self.take, self.frames.feed(data))

    def take(self, frame: memoryview) -> Response[WaiterT]:
        """Decode a response frame, without its length. Raises BadResponse."""
        correlation_id = correlation_id_of(frame)
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            due = f"request {self._in_flight[0][0]}" if self._in_flight else "no request"
            raise UnknownCorrelationId(f"a response to request {correlation_id} where {due} is due")
        _, request, waiter = self._in_flight[0]
        response = Response(waiter, self._decode(request, frame))
        self._in_flight.popleft()
        return response

    def abandon(self) -> list[WaiterT]:
        """Forget all requests in flight, at the end of the connection. Return their waiters, oldest first."""
        waiters = [waiter for _, _, waiter in self._in_flight]
        self._in_flight.clear()
        return waiters

    def _next(self) -> None:
        self._last_id = (self._last_id + 1) & CORRELATION_ID_MAX


def _head(request: Any, correlation_id: int, client_id: bytes | None, body_bytes: int) -> bytes:
    """Return the length and the header of a request."""
    id_bytes, rest = (-1, b"") if client_id is None else (len(client_id), client_id)
    if request.__flexible__:
        rest += b"\x00"
    size = _HEAD.size - LENGTH_BYTES + len(rest) + body_bytes
    return _HEAD.pack(size, request.__api_key__, request.__version__, correlation_id, id_bytes) + rest


@functools.cache
def _writer(schema: Any) -> Callable[[io.BytesIO, Any], None]:
    writer: Callable[[io.BytesIO, Any], None] = entity_writer(schema)
    return writer


def _response_schema(request: Any) -> Any:
    """Return the class of the response: that of kio, or the one that a request of our own names."""
    own = getattr(request, "__response_schema__", None)
    return own or load_response_schema(request.__api_key__, request.__version__)


@functools.cache
def _readers(request: Any) -> tuple[_Read, _Read]:
    """Return the readers of the response's header and body. Only ApiVersions has header version 0 in all versions."""
    schema = _response_schema(request)
    read = _read_transactions if schema is DescribeTransactionsResponse else entity_reader(schema)
    return entity_reader(schema.__header_schema__), read


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransactionState(TransactionState):  # type: ignore[misc]
    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransactionStates(DescribeTransactionsResponse):  # type: ignore[misc]
    transaction_states: tuple[_TransactionState, ...]


def _read_transactions(frame: memoryview, position: int) -> tuple[DescribeTransactionsResponse, int]:
    """Read a response with transactions that have no start: brokers send -1, which kio does not take for a time.

    That is one millisecond before 1970.
    """
    read: _Read = entity_reader(_TransactionStates)
    found, size = read(frame, position)
    states = tuple(map(_with_start_time, found.transaction_states))
    return DescribeTransactionsResponse(throttle_time=found.throttle_time, transaction_states=states), size


def _with_start_time(state: _TransactionState) -> TransactionState:
    start_time: Any = _EPOCH + timedelta(milliseconds=state.transaction_start_time)
    rest = {known.name: getattr(state, known.name) for known in fields(TransactionState)}
    return TransactionState(**{**rest, "transaction_start_time": start_time})
