"""Field types of kio's generated message classes: nullable, array, entity."""

import dataclasses
import functools
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union type; for any other type, the type itself."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return get_args(annotation) if is_union else (annotation,)


def is_nullable(annotation: Any) -> bool:
    return NoneType in members(annotation)


def is_tuple(annotation: Any) -> bool:
    return any(get_origin(member) is tuple for member in members(annotation))


def entity_in(annotation: Any) -> type | None:
    """Return the message class of a field or of its array items; None for primitives."""
    for member in members(annotation):
        inner = get_args(member)[0] if get_origin(member) is tuple else member
        for candidate in members(inner):
            if dataclasses.is_dataclass(candidate) and isinstance(candidate, type):
                return candidate
    return None


@functools.cache
def has_arrays(schema: Any) -> bool:
    """Return whether a message class has an array field, directly or nested."""
    return any(
        is_tuple(field.type) or ((entity := entity_in(field.type)) is not None and has_arrays(entity))
        for field in dataclasses.fields(schema)
    )
