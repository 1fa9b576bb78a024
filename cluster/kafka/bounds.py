"""Every length in a request held against the bytes that remain, before the decoder allocates by it.

kio's native reader reserves memory for as many items as an array claims to have; a claim of two thousand million takes
the whole process down. So each request is walked first, by its schema, without making anything of it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from cordwood.cluster.kafka.schema import entity_in, is_nullable, is_tuple
from cordwood.cluster.kafka.wire import ITEMS_MAX, Malformed, behind, read_length, read_uvarint

_FIXED_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_LENGTH_BYTES = {"string": 2, "bytes": 4, "records": 4}

Walk = Callable[["Walker", int], int]


class Walker:
    """One request on its way through its schema."""

    __slots__ = ("frame", "items_left")

    def __init__(self, frame: memoryview) -> None:
        self.frame = frame
        self.items_left = ITEMS_MAX


def check_bounds(schema: type, frame: memoryview, position: int) -> None:
    """Raises Malformed, or IndexError where the frame ends too soon, for lengths that cannot be."""
    _walk_of(schema)(Walker(frame), position)


@functools.cache
def _walk_of(schema: type) -> Walk:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    walks: list[Walk] = []
    tagged: dict[int, Walk] = {}
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            tagged[int(field.metadata["tag"])] = _field_walk(field, flexible, is_tagged=True)
        else:
            walks.append(_field_walk(field, flexible, is_tagged=False))
    if flexible:
        walks.append(_tags_walk(tagged))

    def walk(walker: Walker, position: int) -> int:
        for step in walks:
            position = step(walker, position)
        return position

    return walk


def _field_walk(field: "dataclasses.Field[Any]", flexible: bool, *, is_tagged: bool) -> Walk:
    entity = entity_in(field.type)
    nullable = is_nullable(field.type) and not is_tagged
    one = _walk_of(entity) if entity is not None else _primitive_walk(field.metadata["kafka_type"], flexible)
    if is_tuple(field.type):
        return _array_walk(one, flexible, nullable)
    if entity is not None and nullable:
        return _nullable_walk(one)
    return one


def _primitive_walk(kind: str, flexible: bool) -> Walk:
    if kind in _FIXED_BYTES:
        size = _FIXED_BYTES[kind]
        return lambda walker, position: behind(walker.frame, position, size)
    if flexible:
        return lambda walker, position: _behind_counted(walker, *read_length(walker.frame, position, True))
    width = _LENGTH_BYTES[kind]

    def legacy(walker: Walker, position: int) -> int:
        end = behind(walker.frame, position, width)
        length = int.from_bytes(walker.frame[position:end], "big", signed=True)
        return _behind_counted(walker, length, end)

    return legacy


def _behind_counted(walker: Walker, length: int, position: int) -> int:
    return behind(walker.frame, position, max(length, 0))


def _array_walk(one: Walk, flexible: bool, nullable: bool) -> Walk:
    def walk(walker: Walker, position: int) -> int:
        count, position = read_length(walker.frame, position, flexible)
        if count < 0 and not nullable:
            raise Malformed("null where an array belongs")
        if count > len(walker.frame) - position:
            raise Malformed(f"an array of {count} items where {len(walker.frame) - position} bytes remain")
        walker.items_left -= max(count, 0)
        if walker.items_left < 0:
            raise Malformed(f"more than {ITEMS_MAX} items in one request")
        for _ in range(count):
            position = one(walker, position)
        return position

    return walk


def _nullable_walk(one: Walk) -> Walk:
    """A marker byte in front: negative for null (KIP-893)."""

    def walk(walker: Walker, position: int) -> int:
        is_null = walker.frame[position] >= 0x80
        return position + 1 if is_null else one(walker, position + 1)

    return walk


def _tags_walk(tagged: dict[int, Walk]) -> Walk:
    def walk(walker: Walker, position: int) -> int:
        count, position = read_uvarint(walker.frame, position)
        for _ in range(count):
            tag, position = read_uvarint(walker.frame, position)
            size, position = read_uvarint(walker.frame, position)
            end = behind(walker.frame, position, size)
            if tag in tagged and tagged[tag](walker, position) > end:
                raise Malformed(f"tagged field {tag} is longer than the {size} bytes it claims")
            position = end
        return position

    return walk
