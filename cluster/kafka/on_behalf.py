"""The frame ON_BEHALF: the user for whom a broker sends the further requests of a connection.

The HTTP API of a broker asks other brokers on behalf of its users. The frame comes before the first request, has the
shape of Kafka's frames and an API key out of a range that Kafka does not use, and has no response. Only an identity
that may do CLUSTER_ACTION can send it; the connection then has the rights of the user, and no others.
"""

import struct

from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.security.principal import Identity, Principal
from cordwood.replication.frames import MalformedFrame

KEY = 1020
VERSION = 0

_HEAD = struct.Struct(">hh")
_LENGTH = struct.Struct(">i")
_TYPES = [str, str, str, str, bool]


def encode_on_behalf(identity: Identity) -> bytes:
    principal = identity.principal
    fields = pack([principal.kind, principal.name, identity.host, identity.mechanism, identity.is_token])
    return _LENGTH.pack(_HEAD.size + len(fields)) + _HEAD.pack(KEY, VERSION) + fields


def is_on_behalf(frame: memoryview) -> bool:
    return len(frame) >= _HEAD.size and _HEAD.unpack_from(frame)[0] == KEY


def decode_on_behalf(frame: memoryview) -> Identity:
    """Decode an ON_BEHALF frame. Raises MalformedFrame."""
    if _HEAD.unpack_from(frame) != (KEY, VERSION):
        raise MalformedFrame("an introduction of a user in an unknown version")
    try:
        fields = unpack(bytes(frame[_HEAD.size :]))
    except (ValueError, TypeError) as error:
        raise MalformedFrame(f"a malformed introduction of a user: {error}") from None
    if not isinstance(fields, tuple) or list(map(type, fields)) != _TYPES or not (fields[0] and fields[1]):
        raise MalformedFrame("a malformed introduction of a user")
    kind, name, host, mechanism, is_token = fields
    return Identity(Principal(kind, name), host, mechanism, is_token)
