"""Fields of the keys and values in internal topics, in Kafka's encoding.

Strings are UTF-8 with an int16 length, byte arrays have an int32 length, -1 for null; flexible versions have varint
lengths plus one, and tagged fields (KIP-482).
"""

import struct
from collections.abc import Mapping, Sequence
from uuid import UUID

from cordwood.storage.errors import CorruptBatch

_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))
BYTE, SHORT, INT, LONG = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


def encode_string(text: str | None) -> bytes:
    if text is None:
        return SHORT.pack(-1)
    encoded = text.encode()
    return SHORT.pack(len(encoded)) + encoded


def encode_uvarint(number: int) -> bytes:
    if number < 0x80:
        return _ONE_BYTE[number]
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_compact_string(text: str) -> bytes:
    encoded = text.encode()
    return encode_uvarint(len(encoded) + 1) + encoded


def encode_compact_nullable(text: str | None) -> bytes:
    return _ONE_BYTE[0] if text is None else encode_compact_string(text)


def encode_compact_bytes(content: bytes) -> bytes:
    return encode_uvarint(len(content) + 1) + content


def encode_compact_array(items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded items."""
    return encode_uvarint(len(items) + 1) + b"".join(items)


def encode_tags(tags: Mapping[int, bytes]) -> bytes:
    """Encode tagged fields, whose numbers must ascend."""
    fields = (encode_uvarint(tag) + encode_uvarint(len(content)) + content for tag, content in tags.items())
    return encode_uvarint(len(tags)) + b"".join(fields)


class FieldReader:
    """A reader of the fields of a key or a value, in order."""

    __slots__ = ("_content", "_is_flexible", "_position")

    def __init__(self, content: bytes, *, is_flexible: bool = False) -> None:
        self._content, self._position, self._is_flexible = content, 0, is_flexible

    def version(self, newest: int, first_flexible: int) -> int:
        """Read the version. Raises CorruptBatch for one of a newer broker: to guess its fields would lose state."""
        version = self.int16()
        if not 0 <= version <= newest:
            raise CorruptBatch(f"a value of version {version}, but only versions up to {newest} are known")
        self._is_flexible = version >= first_flexible
        return version

    def int8(self) -> int:
        return self._number(BYTE)

    def int16(self) -> int:
        return self._number(SHORT)

    def int32(self) -> int:
        return self._number(INT)

    def int64(self) -> int:
        return self._number(LONG)

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def int32s(self) -> tuple[int, ...]:
        """Read an array of int32."""
        length = max(self.count(), 0)
        return struct.unpack(f">{length}i", self._take(INT.size * length))

    def count(self) -> int:
        return self._uvarint() - 1 if self._is_flexible else self.int32()

    def nullable(self) -> str | None:
        length = self._uvarint() - 1 if self._is_flexible else self.int16()
        return None if length < 0 else self._text(length)

    def string(self) -> str:
        return self.nullable() or ""

    def content(self) -> bytes:
        return self._take(max(self.count(), 0))

    def raw(self, length: int) -> bytes:
        """Read bytes whose number is known, such as a UUID."""
        return self._take(length)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a structure; none in versions before the flexible ones."""
        if not self._is_flexible:
            return {}
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def _number(self, layout: struct.Struct) -> int:
        position = self._position
        try:
            number: int = layout.unpack_from(self._content, position)[0]
        except struct.error:
            raise self._too_short(layout.size) from None
        self._position = position + layout.size
        return number

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"text that is not UTF-8: {error}") from error

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._content):
            raise self._too_short(length)
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def _too_short(self, length: int) -> CorruptBatch:
        left = len(self._content) - self._position
        return CorruptBatch(f"a field of {length} bytes, but only {left} bytes remain")

    def _uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise CorruptBatch("a length of more than 32 bits")
