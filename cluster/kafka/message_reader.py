"""The request decoder: kio schemas, decoded in steps, with every array length checked against the remaining bytes.

kio's native reader decodes a message in one call, which blocks the event loop, and allocates by an array's claimed
length. Here arrays are decoded item by item; an entity without arrays is decoded by kio.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from kio._kio_native import get_field_reader, get_reader
from kio.serial import entity_reader

from cordwood.cluster.kafka.schema import entity_in, has_arrays, is_nullable, is_tuple
from cordwood.cluster.kafka.wire import Malformed, read_length, skip_tags
from cordwood.cluster.resources.turns import Steps

Read = Callable[[memoryview, int], tuple[Any, int]]
"""kio's reader: (frame, position) to (value, size in bytes)."""
StepwiseRead = Callable[["Bounded", int], Steps[tuple[Any, int]]]
"""A stepwise reader: (message, position) to (value, position after it)."""


class Bounded:
    """A message during decoding, with its remaining item budget."""

    __slots__ = ("frame", "items_left", "items_max")

    def __init__(self, frame: memoryview, items_max: int) -> None:
        self.frame = frame
        self.items_left = self.items_max = items_max

    def take(self, count: int, position: int) -> None:
        """Charge an array's items to the budget. Raises Malformed if it is exceeded, or the frame is too short."""
        if count > len(self.frame) - position:
            raise Malformed(f"an array of {count} items, but only {len(self.frame) - position} bytes remain")
        self.items_left -= count
        if self.items_left < 0:
            raise Malformed(f"more than {self.items_max} items in one request")


def reading(schema: Any, frame: memoryview, position: int, items_max: int) -> Steps[Any]:
    """Decode the message at `position`. Raises Malformed for any invalid bytes.

    Bytes after the last field are ignored, as in Kafka: librdkafka sends some with Metadata.
    """
    try:
        if has_arrays(schema):
            message, _ = yield from _reader(schema)(Bounded(frame, items_max), position)
        else:
            message, _ = entity_reader(schema)(frame, position)
    except Malformed:
        raise
    except Exception as error:
        # kio raises several kinds of errors for invalid bytes; all of them are the client's fault.
        raise Malformed(str(error) or type(error).__name__) from error
    return message


@functools.cache
def _reader(schema: Any) -> StepwiseRead:
    """Return a stepwise reader that skips tagged fields (KIP-482): of requests with arrays, only Fetch has any."""
    untagged = [field for field in dataclasses.fields(schema) if "tag" not in field.metadata]
    fields = [(field.name, *_field_reader(schema, field)) for field in untagged]
    flexible = bool(schema.__flexible__)

    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        values = {}
        for name, at_once, stepwise in fields:
            if stepwise is None:
                values[name], size = at_once(bounded.frame, position)
                position += size
            else:
                values[name], position = yield from stepwise(bounded, position)
        return schema(**values), skip_tags(bounded.frame, position) if flexible else position

    return read


def _field_reader(schema: Any, field: "dataclasses.Field[Any]") -> tuple[Read, StepwiseRead | None]:
    flexible, entity = bool(schema.__flexible__), entity_in(field.type)
    inner = _reader(entity) if entity is not None and has_arrays(entity) else None
    if not is_tuple(field.type):
        nullable = is_nullable(field.type)
        return get_field_reader(schema, field, False, False), _nullable(inner) if inner and nullable else inner
    one = get_reader(field.metadata["kafka_type"], flexible, False) if entity is None else entity_reader(entity)
    return one, _array_reader(one, inner, flexible, is_nullable(field.type))


def _nullable(inner: StepwiseRead) -> StepwiseRead:
    """Return a reader of a nullable struct, which has a marker byte in front: negative for null (KIP-893)."""

    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        if bounded.frame[position] >= 0x80:
            return None, position + 1
        return (yield from inner(bounded, position + 1))

    return read


def _array_reader(one: Read, inner: StepwiseRead | None, flexible: bool, nullable: bool) -> StepwiseRead:
    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        frame = bounded.frame
        count, position = read_length(frame, position, flexible)
        if count < 0:
            if not nullable:
                raise Malformed("null instead of an array")
            return None, position
        bounded.take(count, position)
        items = []
        for _ in range(count):
            if inner is None:
                item, size = one(frame, position)
                position += size
            else:
                item, position = yield from inner(bounded, position)
            items.append(item)
            yield
        return tuple(items), position

    return read
