"""A blocking connection to a broker with pipelined requests and ordered responses."""

import io
import socket
import struct
from collections import deque
from typing import Any, NamedTuple

from kio.schema.api_versions.v0 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import FetchRequest, FetchResponse
from kio.schema.list_offsets.v5 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.metadata.v8 import MetadataRequest, MetadataResponse
from kio.schema.request_header.v1 import RequestHeader
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from cordwood.spark.client.settings import Address
from cordwood.spark.errors import RequestRefused

FRAME_BYTES_MAX = 128 << 20
"""Twice the maximum decompressed size of a batch. A larger length means that the peer is not a Kafka broker."""

ANSWERS = {FetchRequest: FetchResponse, ListOffsetsRequest: ListOffsetsResponse, MetadataRequest: MetadataResponse}
"""The API versions in use: the newest without tagged fields and topic ids. Kafka serves them from 2.3 on."""

_FRAME = struct.Struct(">i")
_FRAME_AND_ID = struct.Struct(">ii")

_write_header = entity_writer(RequestHeader)
_writers = {request: entity_writer(request) for request in (ApiVersionsRequest, *ANSWERS)}
_readers = {answer: entity_reader(answer) for answer in (ApiVersionsResponse, *ANSWERS.values())}


class ConnectionFailed(Exception):
    """A retriable failure: a broken connection, an unreachable broker, a broker that is not the leader."""


class PendingRequest(NamedTuple):
    """A request without a response."""

    correlation_id: int
    answer: type[Any]


class BrokerConnection:
    """A connection to one broker, open from the start and unusable after ConnectionFailed."""

    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        """Connect and check the API versions. Raises ConnectionFailed, and RequestRefused for unsupported versions."""
        self.address = address
        self._client_id = client_id
        self._next_id = 0
        self._waiting: deque[PendingRequest] = deque()
        self._buffer = bytearray(1 << 16)
        try:
            self._socket = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise ConnectionFailed(f"{address} does not accept connections ({error})") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._check_versions()
        except (ConnectionFailed, RequestRefused):
            self.close()
            raise

    @property
    def has_unanswered(self) -> bool:
        """Whether responses are outstanding. The connection cannot be reused then."""
        return bool(self._waiting)

    def wait_at_most(self, timeout_s: float) -> None:
        """Set the timeout of the following sends and receives."""
        self._socket.settimeout(timeout_s)

    def close(self) -> None:
        """Close the socket, even with responses outstanding."""
        self._socket.close()

    def ask(self, request: Any) -> Any:
        """Send a request and return its response. Raises ConnectionFailed."""
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Send a request; `receive` returns its response later. Raises ConnectionFailed."""
        self._send(request, ANSWERS[type(request)])

    def receive(self) -> Any:
        """Return the response to the oldest outstanding request. Raises ConnectionFailed."""
        waiting = self._waiting.popleft()
        frame = self._receive_frame()
        try:
            _, correlation_id = _FRAME_AND_ID.unpack_from(frame)
            if correlation_id != waiting.correlation_id:
                raise ConnectionFailed(
                    f"{self.address} sent response {correlation_id} to request {waiting.correlation_id}"
                )
            answer, _ = _readers[waiting.answer](frame, _FRAME_AND_ID.size)
        except (SerialError, struct.error, ValueError) as error:
            raise ConnectionFailed(f"{self.address} sent a malformed response ({error})") from error
        finally:
            frame.release()
        return answer

    def _check_versions(self) -> None:
        self._send(ApiVersionsRequest(), ApiVersionsResponse)
        answer = self.receive()
        if answer.error_code is not ErrorCode.none:
            raise RequestRefused(f"{self.address} does not report its API versions ({answer.error_code.name})")
        served = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
        for request in ANSWERS:
            if request.__version__ not in served.get(request.__api_key__, range(0)):
                raise RequestRefused(
                    f"{self.address} does not serve {request.__name__} version {request.__version__}, which every"
                    " Cordwood broker and every Kafka broker since 2.3 supports: upgrade the broker"
                )

    def _send(self, request: Any, answer: type[Any]) -> None:
        header = RequestHeader(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._next_id,
            client_id=self._client_id,
        )
        body = io.BytesIO()
        _write_header(body, header)
        _writers[type(request)](body, request)
        frame = body.getvalue()
        try:
            self._socket.sendall(_FRAME.pack(len(frame)) + frame)
        except OSError as error:
            raise ConnectionFailed(f"the connection to {self.address} broke ({error})") from error
        self._waiting.append(PendingRequest(self._next_id, answer))
        self._next_id += 1

    def _receive_frame(self) -> memoryview:
        """Return the next frame with its length, in a buffer that the following frame reuses."""
        self._fill(0, _FRAME.size)
        (length,) = _FRAME.unpack_from(self._buffer)
        if not _FRAME.size <= length <= FRAME_BYTES_MAX:
            raise ConnectionFailed(
                f"{self.address} does not use Kafka's protocol: it announced a response of {length} bytes"
            )
        end = _FRAME.size + length
        if end > len(self._buffer):
            self._buffer.extend(bytes(end - len(self._buffer)))
        self._fill(_FRAME.size, end)
        return memoryview(self._buffer)[:end].toreadonly()

    def _fill(self, position: int, end: int) -> None:
        with memoryview(self._buffer) as view:
            while position < end:
                try:
                    received = self._socket.recv_into(view[position:end])
                except TimeoutError as error:
                    raise ConnectionFailed(
                        f"{self.address} did not answer for {self._socket.gettimeout():g} s"
                    ) from error
                except OSError as error:
                    raise ConnectionFailed(f"the connection to {self.address} broke ({error})") from error
                if not received:
                    raise ConnectionFailed(f"{self.address} closed the connection")
                position += received
