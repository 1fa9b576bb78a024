"""Random well-formed requests of every API and version that kio knows, with fields from a small vocabulary.

The requests are well-formed, though seldom sensible. The vocabulary is small so that the accepted state stays small:
the same few topics and groups again, instead of a new one in each request.
"""

import dataclasses
import random
import struct
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from cordwood.client.codec import LENGTH_BYTES, encode_request
from cordwood.cluster.kafka.registry import KAFKA_APIS
from cordwood.cluster.kafka.schema import is_nullable, members
from cordwood.storage import records

TOPIC = "wild"
STRINGS = (TOPIC, TOPIC, "", "0", "1", "retention.ms", "range", "..", "\x00\n", "é" * 20, "x" * 300)
WAITS_MS = (0, 0, 1, 3)
TIMES_MS = (0, 1, 10_000, 2**31 - 1)
ITEMS_MAX = 3
HEAD = struct.Struct(">hhi")
CLIENT_ID = b"wild"

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class WildRequest:
    """One request without its length: the header up to `body`, then the fields of its API."""

    api_key: int
    version: int
    frame: bytes
    body: int


def api_versions(keys: Sequence[int]) -> list[tuple[int, int]]:
    """Return every version of each of the APIs that kio can write."""
    return [(key, version) for key in keys for version in schema_name_map[api_key_map[key]]]


def known_apis() -> list[int]:
    """Return the keys of all of Kafka's APIs, for clients and between brokers, served by us or not."""
    return sorted(api_key_map)


def encode(rng: random.Random, entity: Any) -> WildRequest:
    """Return one of kio's requests after a header."""
    schema = type(entity)
    frame = encode_request(entity, rng.randrange(1 << 30), CLIENT_ID)[LENGTH_BYTES:]
    head_bytes = HEAD.size + 2 + len(CLIENT_ID) + schema.__flexible__
    return WildRequest(schema.__api_key__, schema.__version__, frame, head_bytes)


def wild_request(rng: random.Random, api_key: int, version: int) -> WildRequest:
    """Return a well-formed request whose fields are drawn from the vocabulary."""
    return encode(rng, Filling(rng).entity(load_request_schema(api_key, version)))


def served_requests(rng: random.Random, of_each: int) -> list[WildRequest]:
    """Return `of_each` requests of every version that our broker serves."""
    served = {(int(key), version) for key in KAFKA_APIS for version in key.versions}
    writable = [api for api in api_versions(known_apis()) if api in served]
    return [wild_request(rng, *api) for api in writable for _ in range(of_each)]


def any_requests(rng: random.Random, of_each: int) -> list[WildRequest]:
    """Return `of_each` requests of every version of every API of Kafka, for clients and between brokers."""
    return [wild_request(rng, *api) for api in api_versions(known_apis()) for _ in range(of_each)]


class Filling:
    """A random filling of a message's fields. Subclasses with other contents override `items`, `primitive` and `null`.

    A path names the fields from the request down to one of its fields.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def entity(self, schema: type[Any], path: Path = ()) -> Any:
        """Return a whole message, or a part of one."""
        values = {}
        for field in dataclasses.fields(schema):
            # Tagged fields are left out at random, so that their absence is tested too.
            if "tag" in field.metadata and self.rng.random() < 0.5:
                continue
            values[field.name] = self._value((*path, field.name), field.type, field.metadata.get("kafka_type"))
        return schema(**values)

    def items(self, _path: Path, item: Callable[[], Any]) -> tuple[Any, ...]:
        """Return the content of an array."""
        return tuple(item() for _ in range(self.rng.choice((0, 1, 1, 1, 2, ITEMS_MAX))))

    def primitive(self, path: Path, kafka_type: str) -> Any:
        """Return the value of a field that has no fields of its own."""
        return VOCABULARY[kafka_type](self.rng, path[-1])

    def null(self, _path: Path) -> bool:
        """Return whether a nullable field is null."""
        return self.rng.random() < 0.2

    def _value(self, path: Path, annotation: Any, kafka_type: str | None) -> Any:
        if is_nullable(annotation) and self.null(path):
            return None
        inner = next(member for member in members(annotation) if member is not NoneType)
        if get_origin(inner) is tuple:
            return self.items(path, lambda: self._value(path, get_args(inner)[0], kafka_type))
        if kafka_type is None:
            return self.entity(inner, path)
        return self.primitive(path, kafka_type)


def _integer(bits: int) -> Callable[[random.Random, str], int]:
    most = 2 ** (bits - 1) - 1
    return lambda rng, _name: rng.choice((0, 0, 0, 1, -1, 2, 5, most, -most - 1))


def _duration(rng: random.Random, name: str) -> timedelta:
    # A fetch that waits would only delay the requests after it on its connection.
    return timedelta(milliseconds=rng.choice(WAITS_MS if name == "max_wait" else TIMES_MS))


def _batch(rng: random.Random, _name: str) -> bytes:
    written = [records.Record(offset, 0, b"key", b"value", ()) for offset in range(rng.choice((0, 1, 3)) or 1)]
    producer = rng.choice(((-1, -1, -1), (-1, -1, -1), (0, 0, 0), (1, 5, 7)))
    return records.encode(written, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])


VOCABULARY: dict[str, Callable[[random.Random, str], Any]] = {
    "bool": lambda rng, _name: rng.random() < 0.5,
    "int8": _integer(8),
    "int16": _integer(16),
    "uint16": lambda rng, _name: rng.choice((0, 1, 9092, 2**16 - 1)),
    "int32": _integer(32),
    "int64": _integer(64),
    "float64": lambda rng, _name: rng.choice((0.0, -1.0, 1e300)),
    "string": lambda rng, _name: rng.choice(STRINGS),
    "bytes": lambda rng, _name: rng.choice((b"", b"\x00" * 8, b"metadata")),
    "records": _batch,
    "uuid": lambda rng, _name: UUID(int=rng.choice((0, 1, 2**128 - 1))),
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
}
