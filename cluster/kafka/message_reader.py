"""The request decoder: kio schemas, decoded in steps, with every array length checked against the remaining bytes.

kio's native reader decodes a message in one call, which blocks the event loop, and allocates by an array's claimed
length. Here arrays are decoded item by item; an entity without arrays is decoded by kio. The items of a long array are
decoded once to check them, and again during iteration: all items in memory at once would take many times their bytes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from kio._kio_native import get_field_reader, get_reader
from kio.serial import entity_reader

from cordwood.cluster.kafka.schema import entity_in, has_arrays, is_nullable, is_tuple
from cordwood.cluster.kafka.wire import ITEMS_MAX, Malformed, read_length, skip_tags
from cordwood.storage.steps import Steps, at_once

LAZY_FROM = 256
"""The items of a longer array are decoded during iteration."""

Read = Callable[[memoryview, int], tuple[Any, int]]
"""kio's reader: (frame, position) to (value, size in bytes)."""
StepwiseRead = Callable[["Bounded", int], Steps[tuple[Any, int]]]
"""A stepwise reader: (message, position) to (value, position after it)."""


class LazyItems:
    """The items of a long array, which are decoded anew by each iteration. Refers to the frame.

    Items that have a long array of their own are not: finding their ends would take another iteration.
    """

    __slots__ = ("_count", "_decoded", "_frame", "_one", "_position")

    def __init__(
        self, frame: memoryview, position: int, one: Read, count: int, decoded: dict[int, tuple[Any, int]]
    ) -> None:
        self._frame, self._position, self._one, self._count = frame, position, one, count
        self._decoded = decoded
        """Items that are kept, with the position after each."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        position = self._position
        for number in range(self._count):
            if number in self._decoded:
                item, position = self._decoded[number]
            else:
                item, size = self._one(self._frame, position)
                position += size
            yield item


class Bounded:
    """A message during decoding, with its remaining item budget, and the number of its lazy arrays so far."""

    __slots__ = ("frame", "items_left", "items_max", "lazy_arrays")

    def __init__(self, frame: memoryview, items_max: int) -> None:
        self.frame = frame
        self.items_left = self.items_max = items_max
        self.lazy_arrays = 0

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
            message, _ = yield from _reader(schema, is_outer=True)(Bounded(frame, items_max), position)
        else:
            message, _ = entity_reader(schema)(frame, position)
    except Malformed:
        raise
    except Exception as error:
        # kio raises several kinds of errors for invalid bytes; all of them are the client's fault.
        raise Malformed(str(error) or type(error).__name__) from error
    return message


def prepare_reader(schema: Any) -> None:
    """Make what `reading` makes of a schema at its first use."""
    if has_arrays(schema):
        _reader(schema, is_outer=True)
    else:
        entity_reader(schema)


@functools.cache
def _reader(schema: Any, *, is_outer: bool = False) -> StepwiseRead:
    """Return a stepwise reader that skips tagged fields (KIP-482): of requests with arrays, only Fetch has any.

    `is_outer` stands for a whole message.
    """
    untagged = [field for field in dataclasses.fields(schema) if "tag" not in field.metadata]
    fields = [(field.name, *_field_reader(schema, field, is_outer=is_outer)) for field in untagged]
    flexible = bool(schema.__flexible__)

    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        values = {}
        for name, one, stepwise in fields:
            if stepwise is None:
                values[name], size = one(bounded.frame, position)
                position += size
            else:
                values[name], position = yield from stepwise(bounded, position)
        return schema(**values), skip_tags(bounded.frame, position) if flexible else position

    return read


def _field_reader(schema: Any, field: "dataclasses.Field[Any]", *, is_outer: bool) -> tuple[Read, StepwiseRead | None]:
    flexible, entity = bool(schema.__flexible__), entity_in(field.type)
    inner = _reader(entity) if entity is not None and has_arrays(entity) else None
    if not is_tuple(field.type):
        nullable = is_nullable(field.type)
        return get_field_reader(schema, field, False, False), _nullable(inner) if inner and nullable else inner
    one = get_reader(field.metadata["kafka_type"], flexible, False) if entity is None else entity_reader(entity)
    # Handlers take the items of a message in steps, but those of one item at once.
    may_be_lazy = is_outer or (entity is not None and inner is None)
    return one, _array_reader(one, inner, flexible, is_nullable(field.type), may_be_lazy=may_be_lazy)


def _nullable(inner: StepwiseRead) -> StepwiseRead:
    """Return a reader of a nullable struct, which has a marker byte in front: negative for null (KIP-893)."""

    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        if bounded.frame[position] >= 0x80:
            return None, position + 1
        return (yield from inner(bounded, position + 1))

    return read


def _array_reader(
    one: Read, inner: StepwiseRead | None, flexible: bool, nullable: bool, *, may_be_lazy: bool
) -> StepwiseRead:
    def again(frame: memoryview, position: int) -> tuple[Any, int]:
        assert inner is not None
        item, end = at_once(inner(Bounded(frame, ITEMS_MAX), position))
        return item, end - position

    def read(bounded: Bounded, position: int) -> Steps[tuple[Any, int]]:
        frame = bounded.frame
        count, position = read_length(frame, position, flexible)
        if count < 0:
            if not nullable:
                raise Malformed("null instead of an array")
            return None, position
        bounded.take(count, position)
        begin, is_lazy = position, may_be_lazy and count > LAZY_FROM
        items, decoded = [], {}
        for number in range(count):
            lazy_before = bounded.lazy_arrays
            if inner is None:
                item, size = one(frame, position)
                position += size
            else:
                item, position = yield from inner(bounded, position)
            if not is_lazy:
                items.append(item)
            elif bounded.lazy_arrays > lazy_before:
                decoded[number] = item, position
            yield
        if is_lazy:
            bounded.lazy_arrays += 1
            return LazyItems(frame, begin, one if inner is None else again, count, decoded), position
        return tuple(items), position

    return read
