"""Encodings of record keys and values in JSON: text, JSON or base64."""

import base64
from enum import Enum
from typing import Any, Literal, assert_never

import msgspec

from cordwood.cluster.http.records.portions import MarkerRecord
from cordwood.storage.records import Record


class Encoding(Enum):
    """The encoding of keys or values."""

    TEXT = "text"
    """A string, in UTF-8."""
    JSON = "json"
    """Any JSON value, stored as it is written."""
    BASE64 = "base64"
    """A string in base64, for any bytes."""


class RecordHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record header, with text, or base64 if the value is not valid UTF-8."""

    name: str
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET


class ReadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. Keys and values are in the requested encoding.

    Bytes that are not valid JSON are returned as text, and bytes that are not valid UTF-8 in base64, in the field with
    the suffix `_base64`. `cordwood consume --json` has the same format.
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
    control: Literal["commit", "abort"] | msgspec.UnsetType = msgspec.UNSET
    """The decision of a transaction marker, which has neither key nor value; only with `markers`."""
    producer_id: int | msgspec.UnsetType = msgspec.UNSET
    """The producer of the transaction that the marker ends."""
    producer_epoch: int | msgspec.UnsetType = msgspec.UNSET


def bytes_of(content: Any, encoding: Encoding) -> bytes | None:
    """Return the bytes of a key or value that was decoded by `shape_of`."""
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
            # Null means no value in every encoding.
            return None if content == _NULL else bytes(content)
        case _:
            assert_never(encoding)


def shape_of(encoding: Encoding) -> Any:
    """Return the type that a key or value is decoded to."""
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
    """Return a record in the format of the response."""
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


def written_marker(topic: str, partition: int, marker: MarkerRecord) -> ReadRecord:
    """Return a transaction marker in the format of the response."""
    return ReadRecord(
        topic,
        partition,
        marker.offset,
        marker.timestamp,
        control="commit" if marker.is_commit else "abort",
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
    )


def _written(content: bytes | None, encoding: Encoding) -> tuple[Any, Any]:
    """Return the contents of the plain and the base64 field."""
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
    """Return whether the bytes are JSON that fits in a line unchanged."""
    if b"\n" in content or b"\r" in content:
        return False
    try:
        # msgspec does not validate UTF-8 in values that it skips.
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
