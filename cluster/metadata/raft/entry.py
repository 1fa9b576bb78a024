"""The format of a metadata log entry: a tag against duplicates, the proposer's applied index, and a command.

Eight bytes of tag; then, if there is a command, 0xC1, which begins no msgpack value, the index of the newest entry that
the proposer had applied (u64, big-endian), and the command. Earlier versions wrote the command directly after the tag.
An entry without a command is a barrier: it changes nothing, and its proposer's image then has every entry committed
before.
"""

from struct import Struct
from typing import NamedTuple

TAG_BYTES = 8
_AFTER = Struct(">BQ")
_HAS_AFTER = 0xC1


class Entry(NamedTuple):
    """A decoded entry. `after` is None in entries of earlier versions, and in those without a command."""

    tag: bytes
    after: int | None
    command: bytes


def encode(tag: bytes, after: int, command: bytes) -> bytes:
    return tag + _AFTER.pack(_HAS_AFTER, after) + command if command else tag


def decode(entry: bytes) -> Entry:
    tag, rest = entry[:TAG_BYTES], entry[TAG_BYTES:]
    if len(rest) < _AFTER.size or rest[0] != _HAS_AFTER:
        return Entry(tag, None, rest)
    _, after = _AFTER.unpack_from(rest)
    return Entry(tag, after, rest[_AFTER.size :])
