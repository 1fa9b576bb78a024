"""Packing of metadata as msgpack: plain values, tuples, UUIDs, and dataclasses as sequences of their fields."""

from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import msgpack

from cordwood.cluster.metadata.acls import Acl

_UUID_EXTENSION = 1
PACKED_BYTES_USUAL = 1024


def pack(value: object) -> bytes:
    """Pack a value. Raises TypeError for a value of another kind."""
    # Most values are small. `packb` would allocate 256 KiB for each, heartbeats of the quorum included.
    packed: bytes = msgpack.Packer(default=_fields_of, buf_size=PACKED_BYTES_USUAL).pack(value)
    return packed


def unpack(data: bytes) -> Any:
    """Unpack msgpack, with a tuple for every sequence. Raises ValueError."""
    try:
        return msgpack.unpackb(data, use_list=False, ext_hook=_unpack_uuid, strict_map_key=False)
    except (msgpack.UnpackException, ValueError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def _fields_of(value: object) -> object:
    if isinstance(value, UUID):
        return msgpack.ExtType(_UUID_EXTENSION, value.bytes)
    if isinstance(value, Acl):
        on = value.on
        return (on.resource, on.name, on.pattern, value.principal, value.host, value.operation, value.permission)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple([getattr(value, field.name) for field in fields(value)])
    raise TypeError(f"{type(value).__name__} has no place in the metadata")


def _unpack_uuid(code: int, data: bytes) -> UUID:
    if code != _UUID_EXTENSION:
        raise ValueError(f"extension {code} is unknown")
    return UUID(bytes=data)
