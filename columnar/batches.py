"""Record batches of one read: splitting, CRC checks, and filtering of aborted transactions (read_committed)."""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordwood.columnar.errors import CorruptRecords, OldFormat
from cordwood.storage.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, check
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.types import TopicPartition
from cordwood.storage.visibility import Visibility

LENGTH_AT, MAGIC_AT = 8, 16

_LENGTH = struct.Struct(">i")


class Aborted(NamedTuple):
    """An aborted transaction: its producer id and its first offset."""

    producer_id: int
    first_offset: int


class Framed(NamedTuple):
    """A batch header, and the batch's position in the bytes that were read."""

    position: int
    header: BatchHeader


class FetchedBatches(NamedTuple):
    """One Fetch response or range of an archived segment: whole batches, their positions, and aborted transactions.

    The first batch may begin before the first wanted offset, and the last batch may extend past the end of the range.
    """

    data: Bytes
    batches: list[Framed]
    aborted: list[Aborted]

    @property
    def end(self) -> int:
        """The next offset to read, also after records removed by compaction."""
        return self.batches[-1].header.end


def split(data: Bytes, place: TopicPartition, offset: int) -> list[Framed]:
    """Return the whole batches of a response to a fetch at `offset`, with checksums verified.

    A broker cuts the response at the requested size: an incomplete last batch is left out, unless it is the first.
    Raises CorruptRecords, OldFormat.
    """
    batches: list[Framed] = []
    position = 0
    while len(data) - position > MAGIC_AT:
        if data[position + MAGIC_AT] < MAGIC:
            raise OldFormat(
                f"{place} has records in a format older than Kafka 0.11 at offset {offset}: copy the topic with a"
                " newer client"
            )
        try:
            if not _is_whole(data, position):
                break
            header = check(data, position)
        except CorruptBatch as error:
            raise CorruptRecords(place, offset, str(error)) from error
        if header.end <= offset or (batches and header.base_offset < offset):
            raise CorruptRecords(place, offset, f"offsets {header.base_offset} to {header.end} instead")
        batches.append(Framed(position, header))
        position += header.size
        offset = header.end
    if data and not batches:
        raise CorruptRecords(place, offset, f"{len(data)} bytes that are not a whole batch")
    return batches


def _is_whole(data: Bytes, position: int) -> bool:
    remain = len(data) - position
    return remain >= HEADER_BYTES and _LENGTH.unpack_from(data, position + LENGTH_AT)[0] <= remain - LENGTH_PREFIX_BYTES


def visible(data: Bytes, batches: Iterable[Framed], aborted: Iterable[Aborted]) -> Iterator[Framed]:
    """Yield the batches without control batches and without aborted transactions.

    `aborted` comes from the same response, and is empty for read_uncommitted. Raises CorruptBatch.
    """
    visibility, view = Visibility(aborted), memoryview(data)
    for batch in batches:
        position, header = batch
        if visibility.shows(header, view[position : position + header.size]):
            yield batch
