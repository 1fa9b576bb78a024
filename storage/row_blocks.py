"""Rows of fixed size beside a segment: a head with the segment's base offset, then blocks of rows with a CRC-32C each.

A reader takes the blocks up to the first wrong byte. The rows after it are not lost: they are rebuilt from the segment.
"""

import struct

from crc32c import crc32c

from cordwood.storage.disk import File
from cordwood.storage.errors import DamagedLog

_HEAD = struct.Struct(">8sqI")
_BLOCK = struct.Struct(">II")


def head_of(magic: bytes, base_offset: int) -> bytes:
    """Return the head of the file: magic, base offset i64, CRC-32C of both."""
    return _HEAD.pack(magic, base_offset, crc32c(magic + struct.pack(">q", base_offset)))


def block_of(rows: bytes, row_bytes: int) -> bytes:
    """Return the head of a block: row count and CRC-32C of the rows."""
    return _BLOCK.pack(len(rows) // row_bytes, crc32c(rows))


def read_rows(file: File, magic: bytes, base_offset: int, row_bytes: int) -> tuple[bytes, DamagedLog | None]:
    """Return the rows of a file up to the first wrong byte, and the damage found there."""
    content = file.pread(file.size(), 0)
    if len(content) < _HEAD.size:
        return b"", None
    if content[: _HEAD.size] != head_of(magic, base_offset):
        return b"", DamagedLog(file.path, 0, "the index's head is wrong")
    found: list[bytes] = []
    position = _HEAD.size
    while position < len(content):
        count, crc = _BLOCK.unpack_from(content, position) if position + _BLOCK.size <= len(content) else (0, 0)
        rows = content[position + _BLOCK.size : position + _BLOCK.size + count * row_bytes]
        if count == 0 or len(rows) < count * row_bytes or crc32c(rows) != crc:
            damage = DamagedLog(file.path, position, "a block of the index does not match its checksum")
            return b"".join(found), damage
        found.append(rows)
        position += _BLOCK.size + len(rows)
    return b"".join(found), None
