"""Kafka protocol primitives, read and written by hand (varints, strings, array lengths, tagged fields), and limits."""

import struct
from uuid import UUID

_SHORT = struct.Struct(">h").pack
_read_short = struct.Struct(">h").unpack_from
_read_int = struct.Struct(">i").unpack_from
_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))
TOPIC_ID_BYTES = 16

Topic = str | UUID
"""A topic as a request names it: by its name, or in newer versions by its id (KIP-516)."""

ITEMS_MAX = 100_000
"""Maximum number of items in all arrays of one request."""
OTHER_BYTES_MAX = 16 << 20
"""Maximum size of a request of any API but Produce: its objects take several times its size.

The largest requests that clients need are a Fetch of 50,000 partitions (15 MB if each is of another topic with the
longest allowed name) and a CreateTopics of 10,000 topics (10 MB with 10 configs each).
"""
STRING_BYTES_MAX = (1 << 15) - 1
"""Maximum length of a string, as in Kafka, for int16 and varint lengths alike."""
TAGS_MAX = 64
"""Maximum number of tagged fields in one structure. Kafka's have up to five; no other limit bounds their cost."""


DECODED_SHARE = 12
"""Memory of a decoded request, as a multiple of its frame size."""
DECODED_ITEMS_BYTES = 34 << 20
"""Memory of ITEMS_MAX decoded items and their results, strings excluded: the other bound of a decoded request. With it
the largest request of OTHER_BYTES_MAX, its receive buffer and the other pools' own parts fit the common limit."""


class Malformed(Exception):
    """Bytes that are not a valid message of the claimed API version."""


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint: seven bits a byte, lowest first (KIP-482)."""
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def legacy_string(text: str) -> bytes:
    """Encode a string after its length as an int16."""
    encoded = text.encode()
    return _SHORT(len(encoded)) + encoded


def compact_string(text: str) -> bytes:
    """Encode a string after its length plus one as a varint (KIP-482)."""
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """Return a varint and the position after it. Raises IndexError at the frame's end, and Malformed."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    number, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = frame[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + 1
        shift += 7
        if shift > 28:
            raise Malformed("a length of more than 32 bits")


def read_length(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """Return the length of an array or of bytes, and the position after it; -1 stands for null."""
    if flexible:
        number, position = read_uvarint(frame, position)
        return number - 1, position
    return _read_int(frame, position)[0], position + 4


def read_string(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    """Return a nullable string, and the position after it. Raises Malformed."""
    if flexible:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        length, position = _read_short(frame, position)[0], position + 2
    if length < 0:
        return None, position
    if length > STRING_BYTES_MAX:
        raise Malformed(f"a string of {length} bytes: the limit is {STRING_BYTES_MAX}")
    end = end_of_field(frame, position, length)
    return str(frame[position:end], "utf-8"), end


def read_topic_id(frame: memoryview, position: int) -> tuple[UUID, int]:
    """Return a topic id, and the position after it. Raises Malformed."""
    end = end_of_field(frame, position, TOPIC_ID_BYTES)
    return UUID(bytes=bytes(frame[position:end])), end


def read_count(frame: memoryview, position: int, flexible: bool, item_bytes: int) -> tuple[int, int]:
    """Return an array's item count and the position after it; 0 for null.

    Raises Malformed for more than ITEMS_MAX items, or more than the remaining bytes can hold.
    """
    count, position = read_length(frame, position, flexible)
    if count > ITEMS_MAX or count * item_bytes > len(frame) - position:
        raise Malformed(f"an array of {count} items, but only {len(frame) - position} bytes remain")
    return count if count > 0 else 0, position


def decoded_bytes(size: int) -> int:
    """Return an upper bound of the memory that handling a request of `size` bytes takes."""
    return min(DECODED_SHARE * size, size + DECODED_ITEMS_BYTES)


def check_items(count: int) -> None:
    """Check an item count. Raises Malformed above ITEMS_MAX."""
    if count > ITEMS_MAX:
        raise Malformed(f"more than {ITEMS_MAX} items in one request")


def end_of_field(frame: memoryview, position: int, length: int) -> int:
    """Return the position after `length` bytes. Raises Malformed past the frame's end."""
    end = position + length
    if end > len(frame):
        raise Malformed(f"a field of {length} bytes, but only {len(frame) - position} bytes remain")
    return end


def skip_tags(frame: memoryview, position: int) -> int:
    """Return the position after a structure's tagged fields. Raises IndexError at the frame's end, and Malformed."""
    count, position = read_uvarint(frame, position)
    if count > TAGS_MAX:
        raise Malformed(f"{count} tagged fields in one structure: the limit is {TAGS_MAX}")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position = end_of_field(frame, position, size)
    return position
