"""Readers of msgpack fields, derived from dataclass annotations. A value of any other type is refused."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from enum import IntEnum
from itertools import chain
from math import isfinite
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Reader = Callable[[Any], Any]
"""Converts an unpacked value to the declared type. Raises ValueError."""

BROKER_ID_MAX = (1 << 31) - 1
"""The largest broker id: Kafka's protocol has a signed 32-bit field for it."""
_INT_MAX = (1 << 63) - 1


def record_reader(kind: Any, special: dict[Any, Reader]) -> Reader:
    """Return a reader that makes a dataclass of a sequence of fields. Trailing fields with defaults may be missing.

    `special` has the readers of types that are not packed field by field.
    """
    hints, declared = get_type_hints(kind), fields(kind)
    readers = [reader_of(hints[field.name], special) for field in declared]
    required = sum(field.default is MISSING for field in declared)

    def read(value: Any) -> Any:
        row = _sequence(value)
        if not required <= len(row) <= len(readers):
            raise ValueError(f"{kind.__name__} with {len(row)} fields")
        return kind(*(reader(item) for reader, item in zip(readers, row, strict=False)))

    return read


def reader_of(annotation: Any, special: dict[Any, Reader]) -> Reader:
    """Return the reader of values of one declared type."""
    if annotation in special:
        return special[annotation]
    if annotation is int:
        return _whole_number
    if isinstance(annotation, NewType):
        return _broker_id
    if annotation is float:
        return _finite
    if annotation in (str, bool, bytes, UUID, type(None)):
        return _instance_of(annotation)
    if get_origin(annotation) is tuple:
        return _tuple_reader(get_args(annotation), special)
    if get_origin(annotation) in (Union, UnionType):
        return _optional_reader(annotation, special)
    if issubclass(annotation, IntEnum):
        choices: type[IntEnum] = annotation
        return choices
    return record_reader(annotation, special)


def text(value: Any) -> str:
    """Return `value` if it is a string. Raises ValueError."""
    if type(value) is not str:
        raise ValueError(f"{type(value).__name__} instead of a string")
    return value


def _whole_number(value: Any) -> int:
    if type(value) is not int or not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise ValueError(f"{value!r:.20} instead of an integer")
    return value


def _finite(value: Any) -> float:
    if type(value) is not float or not isfinite(value):
        raise ValueError(f"{value!r:.20} instead of a finite number")
    return value


def _broker_id(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= BROKER_ID_MAX:
        raise ValueError(f"{value!r:.20} instead of a broker id")
    return value


def _lists_of_broker_ids(value: Any) -> Any:
    """Return the lists unchanged. The check runs no Python code per list: a topic has one for each partition."""
    rows = _sequence(value)
    if not set(map(type, rows)) <= {tuple}:
        raise ValueError("something else where a sequence belongs")
    ids = list(chain.from_iterable(rows))
    if not set(map(type, ids)) <= {int} or (ids and not 0 <= min(ids) <= max(ids) <= BROKER_ID_MAX):
        raise ValueError("something else where the id of a broker belongs")
    return rows


def _instance_of(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{type(value).__name__} instead of {kind.__name__}")
        return value

    return read


def _tuple_reader(rows: tuple[Any, ...], special: dict[Any, Reader]) -> Reader:
    if rows[-1] is Ellipsis:
        inner = get_args(rows[0])
        if len(inner) == 2 and isinstance(inner[0], NewType) and inner[1] is Ellipsis:
            return _lists_of_broker_ids
        reader = reader_of(rows[0], special)
        return lambda value: tuple(map(reader, _sequence(value)))
    readers = [reader_of(row, special) for row in rows]

    def read(value: Any) -> Any:
        return tuple(reader(item) for reader, item in zip(readers, _sequence(value), strict=True))

    return read


def _optional_reader(annotation: Any, special: dict[Any, Reader]) -> Reader:
    (inner,) = (kind for kind in get_args(annotation) if kind is not type(None))
    reader = reader_of(inner, special)
    return lambda value: None if value is None else reader(value)


def _sequence(value: Any) -> Sequence[Any]:
    if type(value) is not tuple:
        raise ValueError(f"{type(value).__name__} instead of a sequence")
    return value
