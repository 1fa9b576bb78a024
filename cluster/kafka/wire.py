"""The few primitives of Kafka's wire format that the hand-written responses need."""

import struct

_SHORT = struct.Struct(">h").pack


def uvarint(number: int) -> bytes:
    """Seven bits a byte, the lowest first (KIP-482)."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def legacy_string(text: str) -> bytes:
    """A string with its length as an int16 in front."""
    encoded = text.encode()
    return _SHORT(len(encoded)) + encoded


def compact_string(text: str) -> bytes:
    """A string with its length plus one in front, as a varint."""
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded
