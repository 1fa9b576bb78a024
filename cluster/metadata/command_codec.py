"""The encoding of metadata commands in the journal and between brokers."""

from dataclasses import MISSING, fields
from typing import Any, get_args

from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.commands import Command
from cordwood.cluster.metadata.fields import record_reader, text
from cordwood.cluster.metadata.packed import pack, unpack


def acl_of(fields: Any) -> Acl:
    """Decode an ACL from its packed fields. Raises ValueError or TypeError."""
    resource, name, pattern, principal, host, operation, permission = fields
    on = ResourcePattern(AclResource(resource), text(name), Pattern(pattern))
    return Acl(on, text(principal), text(host), AclOperation(operation), Permission(permission))


# These numbers are in journals on users' disks: never change one, and never give one to another command.
_READERS = {kind.KIND: record_reader(kind, {Acl: acl_of}) for kind in get_args(Command)}

_DEFAULTS = {
    kind: {number: field.default for number, field in enumerate(fields(kind), 1) if field.default is not MISSING}
    for kind in get_args(Command)
}


class UnknownCommand(Exception):
    """The bytes are no command of this version. A newer version may have written them."""


def encode(command: Command) -> bytes:
    """Encode a command as msgpack: its number, then the fields in the order of declaration.

    Trailing fields that have their defaults are left out: the previous release may not know them.
    """
    values = [getattr(command, name) for name in command.__slots__]
    defaults = _DEFAULTS[type(command)]
    while values and len(values) in defaults and values[-1] == defaults[len(values)]:
        values.pop()
    return pack([command.KIND, *values])


def decode(data: bytes) -> Command:
    """Decode a command; each value has its declared type. Raises UnknownCommand."""
    try:
        kind, *fields = unpack(data)
        if kind not in _READERS:
            raise UnknownCommand(f"unknown command {kind}, written by a newer version of Cordwood")
        command: Command = _READERS[kind](tuple(fields))
    except (TypeError, ValueError) as error:
        raise UnknownCommand(f"{len(data)} bytes that are not a valid command: {error}") from None
    return command
