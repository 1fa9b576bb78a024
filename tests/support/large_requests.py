"""Requests of maximum size: for every array of every served API, a request with thousands of items in it."""

import dataclasses
import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.serial import entity_writer

from cordwood.chaos.sim.plan import TOPIC
from cordwood.cluster.kafka.registry import KAFKA_APIS, items_max_of, load
from cordwood.cluster.kafka.schema import entity_in, is_nullable, is_tuple
from cordwood.storage.records import Record, encode

HEAD = struct.Struct(">hhih")
BATCH = encode([Record(0, 1_700_000_000_000, None, b"value")])
SETTINGS = {
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "acks": -1,
    "session_epoch": -1,
    "isolation_level": 0,
}
"""Values of fields that make the request meaningful. Other fields are 0 or the number of their item."""


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """One request with `items` items in the array at path `array`; with `is_same` all items are equal.

    Every other array has one item. With `is_empty` the arrays inside the items are empty.
    """

    api: ModuleType
    version: int
    array: str
    items: int
    is_same: bool = True
    is_empty: bool = False

    def __str__(self) -> str:
        items = "empty" if self.is_empty else "the same" if self.is_same else "different"
        return f"{self.api.KEY.name} {self.version}: {items} {self.array}"

    def frame(self) -> bytes:
        """Return the request's bytes without the length prefix."""
        schema = load_request_schema(self.api.KEY, self.version)
        body = io.BytesIO()
        entity_writer(schema)(body, self._entity(schema, "", 0))
        head = HEAD.pack(self.api.KEY, self.version, 7, 4) + b"test" + (b"\x00" if schema.__flexible__ else b"")
        return head + body.getvalue()

    def _entity(self, schema: Any, path: str, number: int) -> Any:
        fields = [field for field in dataclasses.fields(schema) if "tag" not in field.metadata]
        return schema(**{field.name: self._value(field, f"{path}/{field.name}", number) for field in fields})

    def _value(self, field: Any, path: str, number: int) -> Any:
        entity = entity_in(field.type)
        if not is_tuple(field.type):
            if entity is not None:
                return None if is_nullable(field.type) else self._entity(entity, path, number)
            return self._scalar(field.name, field.metadata["kafka_type"], number)
        if self.is_empty and path.startswith(f"{self.array}/"):
            return ()
        count = self.items if path == self.array else 0
        if self.is_same and count:
            return (self._item(field, path, 0),) * count
        return tuple(self._item(field, path, item) for item in range(count) or [number])

    def _item(self, field: Any, path: str, number: int) -> Any:
        entity = entity_in(field.type)
        if entity is not None:
            return self._entity(entity, path, number)
        return self._scalar(field.name, field.metadata["kafka_type"], number)

    def _scalar(self, name: str, kind: str, number: int) -> Any:
        if name in SETTINGS:
            return SETTINGS[name]
        match kind:
            case "string":
                return f"{TOPIC}{number or ''}"
            case "uuid":
                return UUID(int=number + 1)
            case "bool":
                return True
            case "bytes":
                return b"\x00" * 8
            case "records":
                return BATCH
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=6000 if "session" in name else 0)
            case "int8":
                return 2
            case _:
                return number % (1 << 15)


def arrays_of(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all arrays in a request."""
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            continue
        here = f"{path}/{field.name}"
        if is_tuple(field.type):
            yield here
        if (entity := entity_in(field.type)) is not None:
            yield from arrays_of(entity, here)


def large_requests(items: int) -> list[LargeRequest]:
    """Return requests for every served API in its oldest and newest version, with fewer items if its limit is lower."""
    return [
        LargeRequest(api, version, array, min(items, items_max), is_same, is_empty)
        for api in map(load, KAFKA_APIS)
        for version in dict.fromkeys((api.KEY.versions[0], api.KEY.versions[-1]))
        for arrays in [list(arrays_of(load_request_schema(api.KEY, version)))]
        for array in arrays
        for within in [sum(path.startswith(f"{array}/") for path in arrays)]
        # Each item of the array contains its nested arrays with one item each; the other arrays have one item each too.
        for items_max in [(items_max_of(api) - len(arrays)) // (1 + within)]
        for may_be_empty in [within and version == api.KEY.versions[-1]]
        for is_same, is_empty in ((True, False), (False, False), (True, True))[: 3 if may_be_empty else 2]
    ]
