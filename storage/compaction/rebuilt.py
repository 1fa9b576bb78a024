"""Batches with other records than those they were appended with: their header, length and checksum."""

import struct
from array import array
from bisect import bisect_left

from cordwood.storage.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    peek,
    put_checksum,
)
from cordwood.storage.budget import Budget
from cordwood.storage.decompression import whole_body
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")


def whole_batch_at(data: Bytes, position: int) -> tuple[BatchHeader, memoryview]:
    """Return the batch at `position`, its checksum unchecked. Raises CorruptBatch if it is not whole."""
    header = peek(data, position)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size <= len(data) - position:
        raise CorruptBatch(f"no whole batch at byte {position}")
    if header.base_offset < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(f"the batch of offset {header.base_offset} is malformed")
    return header, memoryview(data)[position : position + header.size]


def unpacked(header: BatchHeader, batch: Bytes) -> bytes:
    """Return a compressed batch without its compression, its checksum left out. Raises CorruptBatch, OverBudget."""
    body = whole_body(batch, header, Budget())
    plain = header._replace(
        attributes=header.attributes & ~CODEC_MASK, length=HEADER_BYTES - LENGTH_PREFIX_BYTES + body.end
    )
    with memoryview(body.content) as content:
        return b"".join((_HEADER.pack(*plain), content[: body.end]))


def rebuilt(header: BatchHeader, content: Bytes) -> bytes:
    """Return a batch with this content, and with this header except for its length and checksum."""
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(content)
    batch = bytearray(_HEADER.pack(*header._replace(length=length))) + content
    put_checksum(batch, 0, len(batch))
    return bytes(batch)


def emptied(header: BatchHeader) -> bytes:
    """Return the batch without its records. Like Kafka's, it has neither a codec nor a base timestamp."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return rebuilt(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def is_needed(header: BatchHeader, needed: "array[int]") -> bool:
    """Return whether the batch's last offset is among these, in ascending order: then it stays without records."""
    place = bisect_left(needed, header.end - 1)
    return place < len(needed) and needed[place] == header.end - 1
