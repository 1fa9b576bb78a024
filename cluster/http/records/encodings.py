"""How keys and values, which are bytes to the log, look in JSON: as text, as JSON, or in base64."""

import base64
from enum import Enum
from typing import Any, assert_never

import msgspec

from cordwood.storage.records import Record


class Encoding(Enum):
    """By the names that a query has for them."""

    TEXT = "text"
    """A string, in UTF-8."""
    JSON = "json"
    """Any JSON value, kept as it is written."""
    BASE64 = "base64"
    """A string in base64: any bytes."""


class RecordHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name with text, or with bytes in base64 where they are no UTF-8."""

    name: str
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET


class ReadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record as it is read. Keys and values are in the encoding that was asked for; those which cannot be, as text
    and then in base64, have a name that says so. The same as `cordwood consume --json` has it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: msgspec.Raw | str | msgspec.UnsetType | None = msgspec.UNSET
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[RecordHeader] | msgspec.UnsetType = msgspec.UNSET


def bytes_of(content: Any, encoding: Encoding) -> bytes | None:
    """What a key or value stands for that was decoded by `shape_of`."""
    if content is None:
        return None
    match encoding:
        case Encoding.TEXT:
            text: bytes = content.encode()
            return text
        case Encoding.BASE64:
            decoded: bytes = content
            return decoded
        case Encoding.JSON:
            # Null stands for no value in every encoding.
            return None if content == _NULL else bytes(content)
        case _:
            assert_never(encoding)


def shape_of(encoding: Encoding) -> Any:
    """What a key or value is decoded to."""
    match encoding:
        case Encoding.TEXT:
            return str | None
        case Encoding.BASE64:
            return bytes | None
        case Encoding.JSON:
            return msgspec.Raw
        case _:
            assert_never(encoding)


def written(topic: str, partition: int, record: Record, key_encoding: Encoding, value_encoding: Encoding) -> ReadRecord:
    """A record of the log, ready to be written as JSON."""
    key, key_base64 = _written(record.key, key_encoding)
    value, value_base64 = _written(record.value, value_encoding)
    return ReadRecord(
        topic,
        partition,
        record.offset,
        record.timestamp,
        key,
        key_base64,
        value,
        value_base64,
        [_header(name, content) for name, content in record.headers] if record.headers else _NO_HEADERS,
    )


def _written(content: bytes | None, encoding: Encoding) -> tuple[Any, Any]:
    """For the two names that a key or value may have."""
    if content is None:
        return None, msgspec.UNSET
    if encoding is Encoding.JSON and _is_json(content):
        return msgspec.Raw(content), msgspec.UNSET
    if encoding is not Encoding.BASE64:
        try:
            return content.decode(), msgspec.UNSET
        except UnicodeDecodeError:
            pass
    return msgspec.UNSET, base64.b64encode(content).decode()


def _is_json(content: bytes) -> bool:
    """Whether it can stand in a line of JSON as it is."""
    if b"\n" in content or b"\r" in content:
        return False
    try:
        # What is only passed over is not held to be UTF-8.
        content.decode()
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _header(name: str, content: bytes | None) -> RecordHeader:
    value, value_base64 = _written(content, Encoding.TEXT)
    return RecordHeader(name, value, value_base64)


_NULL = msgspec.Raw(b"null")
_NO_HEADERS: list[RecordHeader] = []
