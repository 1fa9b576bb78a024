"""The message codec: request headers, request decoding, response encoding and version upgrades, on kio's schemas.

A handler implements only the newest version of its API. An older request is upgraded to it field by field, by name;
missing fields get their defaults. The response is encoded by the older version's writer, which ignores newer fields.
"""

import dataclasses
import functools
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.index import load_request_schema, load_response_schema

from cordwood.client import cut_messages, queue_messages
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.message_reader import prepare_reader, reading
from cordwood.cluster.kafka.message_writer import Answer, prepare_writer, writing
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.kafka.schema import entity_in, is_nullable, is_tuple
from cordwood.cluster.kafka.wire import ITEMS_MAX, Malformed, skip_tags
from cordwood.storage.steps import Steps

_CORRELATION_ID = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")

Upgrade = Callable[[Any], Any]
REQUESTS: dict[int, Any] = {**cut_messages.REQUESTS, **queue_messages.REQUESTS}
"""The requests of APIs that Kafka does not have."""
HAND_WRITTEN: dict[int, int] = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12}
"""The APIs that use none of kio's classes, with their first version that has tagged fields."""
_SERVED: dict[int, range] = {key: key.versions for key in ApiKey}


# kio imports the module by name on each call, which takes longer than decoding a small request.
@functools.cache
def _request_schema(api_key: int, version: int) -> Any:
    return REQUESTS[api_key] if api_key in REQUESTS else load_request_schema(api_key, version)


@functools.cache
def _response_schema(api_key: int, version: int) -> Any:
    return REQUESTS[api_key].__response_schema__ if api_key in REQUESTS else load_response_schema(api_key, version)


class RequestHead(NamedTuple):
    """A request header. `body` is the position of the request's own fields."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: int


def read_head(frame: memoryview, flexible: Callable[[int, int], bool]) -> RequestHead:
    """Read a request header (versions 1 and 2). `flexible` returns whether a version of an API has tagged fields.

    Raises Malformed.
    """
    try:
        api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
        position = _HEAD.size + max(length, 0)
        if length < -1 or position > len(frame):
            raise Malformed(f"a client id of {length} bytes")
        client_id = str(frame[_HEAD.size : position], "utf-8") if length > 0 else ""
        if flexible(api_key, version):
            # Fast path: 0 stands for no tagged fields, the usual case.
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"a malformed request header: {error}") from error
    return RequestHead(api_key, version, correlation_id, client_id, position)


def decoding(api_key: int, version: int, frame: memoryview, position: int, items_max: int = ITEMS_MAX) -> Steps[Any]:
    """Decode a request body into the class of its version. Raises Malformed."""
    return reading(_request_schema(api_key, version), frame, position, items_max)


def encoding(
    api_key: int, version: int, correlation_id: int, response: Any, answer: Answer | None = None
) -> Steps[list[bytes]]:
    """Encode a response frame with its length, as chunks, into `answer`. Raises AnswerTooLarge."""
    schema = _response_schema(api_key, version)
    head = _CORRELATION_ID.pack(correlation_id) + (b"\x00" if schema.__header_schema__.__flexible__ else b"")
    return writing(schema, head, response, answer or Answer())


@functools.cache
def upgrade_request(api_key: int, version: int, newest: int) -> Upgrade:
    """Return a function that upgrades a request from `version` to `newest`."""
    return _lifter(load_request_schema(api_key, version), load_request_schema(api_key, newest))


@functools.lru_cache(1024)
def is_flexible(api_key: int, version: int) -> bool:
    """Return whether requests of this version have tagged fields (KIP-482). False for a version that is not served."""
    if version not in _SERVED.get(api_key, ()):
        return False
    if (flexible_from := HAND_WRITTEN.get(api_key)) is not None:
        return version >= flexible_from
    return bool(_request_schema(api_key, version).__flexible__)


def prepare_requests(api_key: int, version: int) -> None:
    """Import the classes of a version's requests and make their reader."""
    prepare_reader(_request_schema(api_key, version))


def prepare_responses(api_key: int, version: int) -> None:
    """Import the classes of a version's responses and make their writer."""
    prepare_writer(_response_schema(api_key, version))


def _lifter(old: type, new: type) -> Upgrade:
    old_fields = {field.name: field for field in dataclasses.fields(old)}
    steps: list[tuple[str, Upgrade]] = []
    for field in dataclasses.fields(new):
        if field.name in old_fields:
            steps.append((field.name, _field_lifter(field.name, old_fields[field.name].type, field.type)))
        elif field.default is dataclasses.MISSING:
            steps.append((field.name, _constant(_implicit_default(field.type))))

    def lift_one(request: Any) -> Any:
        return new(**{name: step(request) for name, step in steps})

    return lift_one


def _field_lifter(name: str, old: Any, new: Any) -> Upgrade:
    old_entity, new_entity = entity_in(old), entity_in(new)
    if old_entity is None or new_entity is None:
        return lambda request: getattr(request, name)
    inner = _lifter(old_entity, new_entity)
    if is_tuple(new):
        return lambda request: None if (items := getattr(request, name)) is None else rows(inner, items)
    return lambda request: None if (item := getattr(request, name)) is None else inner(item)


def _constant(value: object) -> Upgrade:
    return lambda _request: value


def _implicit_default(annotation: Any) -> object:
    """Return the default of a field that an older version lacks, as in Kafka's generated messages."""
    if is_nullable(annotation):
        return None
    if is_tuple(annotation):
        return ()
    for kind, value in ((bool, False), (str, ""), (bytes, b""), (int, 0), (timedelta, timedelta(0))):
        if isinstance(annotation, type) and issubclass(annotation, kind):
            return value
    raise TypeError(f"no default for {annotation}")
