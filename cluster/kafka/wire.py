"""The few primitives of Kafka's wire format that are read and written by hand."""

import struct

_SHORT = struct.Struct(">h").pack
_read_short = struct.Struct(">h").unpack_from
_read_int = struct.Struct(">i").unpack_from
_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))


ITEMS_MAX = 100_000
"""Items of all arrays of one request together."""
OTHER_BYTES_MAX = 16 << 20
"""A request of any API but Produce: it becomes objects of several times its size.

The largest ones that clients need are 50,000 partitions in a Fetch (15 MB where each is of another topic with the
longest name that there may be) and 10,000 topics to create (10 MB with 10 configs each).
"""
STRING_BYTES_MAX = (1 << 15) - 1
"""As in Kafka, whichever way the length is written."""
TAGS_MAX = 64
"""Tagged fields of one structure. Kafka's have up to five; each takes time, and no other limit holds for them."""


DECODED_SHARE = 12
"""A decoded request takes so many times the bytes of its frame, or"""
DECODED_ITEMS_BYTES = 40 << 20
"""as much for all the items that a request may have and what becomes of them, beside its texts."""


class Malformed(Exception):
    """Bytes that are no request of the version they claim."""


def uvarint(number: int) -> bytes:
    """Seven bits a byte, the lowest first (KIP-482)."""
    if number < 0x80:
        return _ONE_BYTE[number]
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


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and the position behind it. Raises IndexError at the frame's end, and Malformed."""
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
    """The length of an array or of bytes, and the position behind it; -1 stands for null."""
    if flexible:
        number, position = read_uvarint(frame, position)
        return number - 1, position
    return _read_int(frame, position)[0], position + 4


def read_string(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string, and the position behind it."""
    if flexible:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        length, position = _read_short(frame, position)[0], position + 2
    if length < 0:
        return None, position
    if length > STRING_BYTES_MAX:
        raise Malformed(f"a string of {length} bytes, where {STRING_BYTES_MAX} are taken")
    end = behind(frame, position, length)
    return str(frame[position:end], "utf-8"), end


def read_count(frame: memoryview, position: int, flexible: bool, item_bytes: int) -> tuple[int, int]:
    """How many items an array has, held against the bytes that remain; null counts as none."""
    count, position = read_length(frame, position, flexible)
    if count > ITEMS_MAX or count * item_bytes > len(frame) - position:
        raise Malformed(f"an array of {count} items where {len(frame) - position} bytes remain")
    return count if count > 0 else 0, position


def decoded_bytes(size: int) -> int:
    """What a request of so many bytes takes at the most while it is handled."""
    return min(DECODED_SHARE * size, size + DECODED_ITEMS_BYTES)


def check_items(count: int) -> None:
    """Raises Malformed for more items than a request may hold."""
    if count > ITEMS_MAX:
        raise Malformed(f"more than {ITEMS_MAX} items in one request")


def behind(frame: memoryview, position: int, length: int) -> int:
    """The position behind `length` bytes. Raises Malformed where the frame does not have them."""
    end = position + length
    if end > len(frame):
        raise Malformed(f"a field of {length} bytes where {len(frame) - position} remain")
    return end


def skip_tags(frame: memoryview, position: int) -> int:
    """The position behind a structure's tagged fields. Raises IndexError at the frame's end, and Malformed."""
    count, position = read_uvarint(frame, position)
    if count > TAGS_MAX:
        raise Malformed(f"{count} tagged fields in one structure, where {TAGS_MAX} are taken")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position = behind(frame, position, size)
    return position
