"""The client side of the wire protocol, for clients inside a broker: request encoding and response decoding."""

import functools
import io
import struct
from collections.abc import Callable
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from cordwood.cluster.kafka.message_writer import Answer, writing
from cordwood.cluster.kafka.wire import Malformed, skip_tags
from cordwood.cluster.resources.turns import Steps

_HEAD = struct.Struct(">ihhih")
"""Frame length, API key, version, correlation id, and length of the client id."""
_LENGTH = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = struct.calcsize(">ihh")


def encode_head(api_key: int, version: int, correlation_id: int, client_id: bytes, *, body_bytes: int) -> bytes:
    """Encode the frame length and the request header of a flexible version."""
    size = _HEAD.size - _LENGTH.size + len(client_id) + 1 + body_bytes
    return _HEAD.pack(size, api_key, version, correlation_id, len(client_id)) + client_id + b"\x00"


def encode_request(request: Any, correlation_id: int, client_id: bytes) -> bytes:
    """Encode a kio request as a frame, with its length."""
    schema: Any = type(request)
    buffer = io.BytesIO()
    buffer.write(_HEAD.pack(0, schema.__api_key__, schema.__version__, correlation_id, len(client_id)))
    buffer.write(client_id)
    if schema.__flexible__:
        buffer.write(b"\x00")
    _writer_of(schema)(buffer, request)
    frame = buffer.getbuffer()
    _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    del frame
    return buffer.getvalue()


def encoding_request(request: Any, client_id: bytes) -> Steps[list[bytes]]:
    """Encode a request, in steps, into chunks that `with_correlation_id` completes."""
    schema: Any = type(request)
    head = _HEAD.pack(0, schema.__api_key__, schema.__version__, 0, len(client_id))[_LENGTH.size :] + client_id
    return (yield from writing(schema, head + b"\x00" if schema.__flexible__ else head, request, Answer()))


def with_correlation_id(chunks: list[bytes], correlation_id: int) -> list[bytes]:
    """Return the frame of a request with this correlation id."""
    first, *rest = chunks
    rest_of_first = first[_CORRELATION_ID_AT + _CORRELATION_ID.size :]
    return [first[:_CORRELATION_ID_AT] + _CORRELATION_ID.pack(correlation_id) + rest_of_first, *rest]


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id of a response. Raises Malformed."""
    if len(frame) < _CORRELATION_ID.size:
        raise Malformed(f"a response of {len(frame)} bytes")
    number: int = _CORRELATION_ID.unpack_from(frame)[0]
    return number


def decode_response(request: type, frame: memoryview) -> Any:
    """Decode the response to a request of this class. Raises Malformed.

    Brokers trust each other: lengths are not checked against any bound before they are read.
    """
    read, has_tags = _reader(request)
    try:
        position = skip_tags(frame, _CORRELATION_ID.size) if has_tags else _CORRELATION_ID.size
        response, _ = read(frame, position)
    except Malformed:
        raise
    except Exception as error:
        # kio raises several kinds of errors for invalid bytes.
        raise Malformed(f"a malformed response: {error}") from error
    return response


@functools.cache
def _writer_of(schema: Any) -> Callable[[io.BytesIO, Any], None]:
    writer: Callable[[io.BytesIO, Any], None] = entity_writer(schema)
    return writer


@functools.cache
def _reader(request: Any) -> tuple[Callable[[memoryview, int], tuple[Any, int]], bool]:
    schema = load_response_schema(request.__api_key__, request.__version__)
    return entity_reader(schema), schema.__header_schema__.__flexible__
