"""Records in a request body: JSON in a given encoding, or one record as the whole body."""

import asyncio
import base64
import binascii
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from cordwood.cluster.http.api.topics import PartitionIndex
from cordwood.cluster.http.records.encodings import Encoding, shape_of
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.route import read_json

RECORDS_MAX = 10_000
"""The limit of one request: JSON objects take more memory than their bytes."""
TIMESTAMP_MAX = (1 << 62) - 1
TOKENS_PER_TURN = 2000
"""JSON tokens scanned per event-loop iteration; they take some 0.5 ms."""
_TOKEN = re.compile(rb'[{}\[\]]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
"""An unterminated string extends to the end of the body, so that each byte is scanned once."""
_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")
_DEPTH_OF_RECORDS = 2
"""The depth of the records: the body is an object with a list of them."""

RECORD_KEY, RECORD_KEY_BASE64 = "Record-Key", "Record-Key-Base64"

K = TypeVar("K")
V = TypeVar("V")
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=TIMESTAMP_MAX)]


class NewRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One record. Key and value are in the encodings that the query names."""

    value: Any
    """Null for no value, a tombstone on a compacted topic."""
    key: Any = None
    """Records with the same key go to the same partition, in their order."""
    headers: dict[str, str | None] = {}
    partition: PartitionIndex | None = None
    """The partition, if the key is not to decide."""
    timestamp: Timestamp | None = None
    """Milliseconds since 1970; the time of the request if left out."""


class NewRecords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records to append, in their order."""

    records: Annotated[list[NewRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class _RecordIn(NewRecord, Generic[K, V], frozen=True, forbid_unknown_fields=True):
    """One record, in given encodings."""

    value: V
    key: K | None = None


class _RecordsIn(msgspec.Struct, Generic[K, V], frozen=True, forbid_unknown_fields=True):
    """`NewRecords` in given encodings. The number of records is checked after decoding, which takes less memory."""

    records: list[_RecordIn[K, V]]


def records_in(content: bytes, key_encoding: Encoding, value_encoding: Encoding) -> Sequence[NewRecord]:
    """Decode the records of a JSON body; `bytes_of` decodes keys and values. Raises HttpRefusal."""
    if Encoding.JSON in (key_encoding, value_encoding):
        _check_utf8(content)
    records: Sequence[NewRecord] = read_json(content, _shape(key_encoding, value_encoding)).records
    if not 1 <= len(records) <= RECORDS_MAX:
        raise HttpRefusal(422, f"The request has {len(records)} records: send 1 to {RECORDS_MAX} in one request.")
    return records


async def check_count(content: bytes) -> None:
    """Refuse a JSON body with too many records before it is decoded. Yields to the event loop.

    Raises HttpRefusal.
    """
    if content.count(b"{") <= RECORDS_MAX:
        return
    depth = records = 0
    for number, token in enumerate(_TOKEN.finditer(content), 1):
        if (mark := token[0]) in _OPENING:
            records += depth == _DEPTH_OF_RECORDS
            depth += 1
            if records > RECORDS_MAX:
                raise HttpRefusal(
                    422, f"The request has more than {RECORDS_MAX} records: send 1 to {RECORDS_MAX} in one request."
                )
        else:
            depth -= mark in _CLOSING
        if number % TOKENS_PER_TURN == 0:
            await asyncio.sleep(0)


def _check_utf8(content: bytes) -> None:
    """Refuse invalid UTF-8, which msgspec does not detect in raw JSON values. Raises HttpRefusal."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise HttpRefusal(400, f"The body is not UTF-8: {error}.") from error


@functools.cache
def _shape(key_encoding: Encoding, value_encoding: Encoding) -> Any:
    return _RecordsIn[shape_of(key_encoding), shape_of(value_encoding)]  # type: ignore[misc]


def whole_body(content: bytes, headers: Mapping[str, str]) -> NewRecord:
    """Return a body that is one record. Raises HttpRefusal."""
    text, packed = headers.get(RECORD_KEY), headers.get(RECORD_KEY_BASE64)
    if packed is None:
        return NewRecord(content, None if text is None else text.encode("utf-8", "surrogateescape"))
    if text is not None:
        raise HttpRefusal(400, f"Give the key as {RECORD_KEY} or as {RECORD_KEY_BASE64}, not both.")
    try:
        return NewRecord(content, base64.b64decode(packed, validate=True))
    except (binascii.Error, ValueError) as error:
        raise HttpRefusal(400, f"{RECORD_KEY_BASE64} is not base64: {error}.") from error
