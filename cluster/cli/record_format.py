"""Format of consumed records on standard output: raw bytes, or one JSON object a line."""

import base64
import json
import os
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from confluent_kafka import Message

NO_TIMESTAMP = 0


class Renderer:
    """Writer of records to a stream of bytes."""

    def __init__(self, out: BinaryIO, as_json: bool, key_separator: str | None) -> None:
        self._out = out
        self._as_json = as_json
        self._separator = None if key_separator is None else os.fsencode(key_separator)

    def record(self, message: "Message[bytes, bytes]") -> None:
        """Write one record and a newline. A null key or value is written as nothing."""
        if self._as_json:
            self._out.write(json.dumps(fields(message), ensure_ascii=False).encode() + b"\n")
            return
        if self._separator is not None:
            self._out.write((message.key() or b"") + self._separator)
        self._out.write((message.value() or b"") + b"\n")

    def flush(self) -> None:
        """Flush the stream, for the reader at the other end of the pipe."""
        self._out.flush()


def fields(message: "Message[bytes, bytes]") -> dict[str, Any]:
    """Return a record's JSON fields: bytes are text, or base64 in a `_base64` field if they are not UTF-8."""
    timestamp_type, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if timestamp_type == NO_TIMESTAMP else timestamp,
        **_bytes_field("key", message.key()),
        **_bytes_field("value", message.value()),
        "headers": [{"name": name, **_bytes_field("value", _as_bytes(value))} for name, value in _headers(message)],
    }


def _headers(message: "Message[bytes, bytes]") -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _bytes_field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
