"""Produce and Fetch frames built in advance, and a client that takes almost no processor time itself."""

import socket
import struct
import time
from types import TracebackType
from typing import Self

from cordwood.bench.systems import API_VERSIONS_REQUEST
from cordwood.storage.disk import Bytes
from cordwood.storage.records import Record, encode

TIMEOUT_S = 60.0
BUFFER_BYTES = 64 << 10
ACKS_ALL = -1
_SIZE = struct.Struct(">i")
_PRODUCE_V7, _FETCH_V11 = struct.pack(">hhih", 0, 7, 1, -1), struct.pack(">hhih", 1, 11, 1, -1)
"""API key, version, correlation id 1, no client id."""
_ARRAY_OF_ONE = _SIZE.pack(1)
_OFFSET = struct.Struct(">q")
_CODE_AND_OFFSET = struct.Struct(">hq")
_CODE = struct.Struct(">h")
_ROW = struct.Struct(">ihqqqiii")
"""Index, error, watermark, last stable offset, log start, aborted transactions, read replica, size of the batches."""


class RequestFailed(Exception):
    """The broker answered with an error code, or closed the connection; the message says which."""


def batch_of(value_bytes: int) -> bytes:
    """Return a batch of one record with a value of `value_bytes`, stamped now."""
    value = (bytes(range(256)) * (value_bytes // 256 + 1))[:value_bytes]
    return encode([Record(0, int(time.time() * 1000), None, value)])


class ProduceFrame:
    """A Produce frame (acks=all) with one batch for one partition."""

    def __init__(self, topic: str, partition: int, batch: bytes) -> None:
        name = topic.encode()
        head = _PRODUCE_V7 + struct.pack(">hhi", -1, ACKS_ALL, 30_000) + _ARRAY_OF_ONE
        place = struct.pack(">h", len(name)) + name + _ARRAY_OF_ONE + struct.pack(">ii", partition, len(batch))
        size = len(head) + len(place) + len(batch)
        self.frame = b"".join((_SIZE.pack(size), head, place, batch))
        # Correlation id, one topic and its name, one partition and its index.
        self._code_at = 4 + 4 + 2 + len(name) + 4 + 4

    def offset_in(self, answer: Bytes) -> int:
        """Return the base offset of the batch from an answer. Raises RequestFailed."""
        code, offset = _CODE_AND_OFFSET.unpack_from(answer, self._code_at)
        if code:
            raise RequestFailed(f"Produce: error {code}")
        return int(offset)


class FetchFrame:
    """A Fetch frame for one partition, with its offset set before each use."""

    def __init__(self, topic: str, partition: int, *, wait_ms: int = 500, bytes_max: int = 1 << 20) -> None:
        name = topic.encode()
        before = (
            _FETCH_V11
            + struct.pack(">iiiib", -1, wait_ms, 1, bytes_max, 0)
            # No session.
            + struct.pack(">ii", 0, -1)
            + _ARRAY_OF_ONE
            + struct.pack(">h", len(name))
            + name
            + _ARRAY_OF_ONE
            + struct.pack(">ii", partition, -1)
        )
        # Offset, log start, size; nothing forgotten, no rack.
        body = before + struct.pack(">qqi", 0, 0, bytes_max) + struct.pack(">ih", 0, 0)
        self._frame = bytearray(_SIZE.pack(len(body)) + body)
        self._offset_at = _SIZE.size + len(before)
        # Correlation id, throttle time, error, session, one topic and its name, one partition.
        self._row_at = 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4

    def at(self, offset: int) -> bytes:
        """Return the frame that fetches from `offset`."""
        _OFFSET.pack_into(self._frame, self._offset_at, offset)
        return bytes(self._frame)

    def batches_in(self, answer: Bytes) -> memoryview:
        """Return the batches of an answer, one after the other; none where the long poll timed out. Raises
        RequestFailed."""
        (whole,) = _CODE.unpack_from(answer, 8)
        if whole:
            raise RequestFailed(f"Fetch: error {whole}")
        _, code, _, _, _, _, _, size = _ROW.unpack_from(answer, self._row_at)
        if code:
            raise RequestFailed(f"Fetch: error {code}")
        begin = self._row_at + _ROW.size
        return memoryview(answer)[begin : begin + max(size, 0)]


class BlockingClient:
    """One blocking connection."""

    def __init__(self, address: str) -> None:
        """Connect. Raises OSError."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def hello(self) -> None:
        """Send ApiVersions, as every client does first."""
        self.ask(API_VERSIONS_REQUEST)

    def ask(self, frame: bytes) -> memoryview:
        """Return the answer to one request, without its size; valid until the next. Raises RequestFailed, OSError."""
        self.socket.sendall(frame)
        return self.answer()

    def answer(self) -> memoryview:
        """Return the next answer, to a request that was sent before. Raises RequestFailed, OSError."""
        self._fill(memoryview(self._buffer)[: _SIZE.size])
        (size,) = _SIZE.unpack_from(self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def produce(self, request: ProduceFrame) -> int:
        """Send a request, and return the offset of its batch. Raises RequestFailed, OSError."""
        return request.offset_in(self.ask(request.frame))

    def _fill(self, view: memoryview) -> None:
        while len(view):
            count = self.socket.recv_into(view)
            if not count:
                raise RequestFailed("the broker ended the connection")
            view = view[count:]
