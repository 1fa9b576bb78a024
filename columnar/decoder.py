"""Decoder of an offset range: the visible records of fetched batches as Arrow RecordBatches."""

import logging
from collections.abc import Iterator

import pyarrow as pa

from cordwood.columnar.arrow import Builder
from cordwood.columnar.batches import FetchedBatches, Framed, visible
from cordwood.columnar.columns import Columns
from cordwood.columnar.decompression import DecompressedBodies, Unpacker
from cordwood.columnar.errors import CorruptRecords
from cordwood.columnar.ranges import OffsetRange
from cordwood.columnar.records import read_records
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

log = logging.getLogger(__name__)

ROWS_MAX = 10_000
"""Maximum number of rows in a RecordBatch, the same as Spark's own."""


class Decoder:
    """A decoder of fetched batches to Arrow. Its decompression buffer is reused."""

    def __init__(
        self, wanted: OffsetRange, columns: Columns, *, may_skip_corrupt: bool = False, how_to_skip: str = ""
    ) -> None:
        """Take the wanted range. `how_to_skip` ends the message of an error that `may_skip_corrupt` would skip."""
        self._wanted, self._may_skip_corrupt, self._how_to_skip = wanted, may_skip_corrupt, how_to_skip
        self._unpacker = Unpacker()
        self._builder = Builder(columns, wanted.place, ROWS_MAX)

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Yield the records of one read that are in the range. Raises CorruptRecords."""
        offset = fetched.batches[0].header.base_offset
        try:
            batches = list(filter(self._overlaps, visible(fetched.data, fetched.batches, fetched.aborted)))
            if self._may_skip_corrupt:
                yield from self._decode_what_can_be(fetched.data, batches)
                return
            for bodies in self._unpacker.bodies(fetched.data, batches):
                offset = bodies.batches[0].header.base_offset
                yield from self._rows_of(bodies)
        except CorruptBatch as error:
            raise CorruptRecords(self._wanted.place, offset, f"{error}{self._how_to_skip}") from error

    def _decode_what_can_be(self, data: Bytes, batches: list[Framed]) -> Iterator[pa.RecordBatch]:
        """Decode batches together, as many as the buffer holds. After an error, decode the rest one by one."""
        done = 0
        try:
            for bodies in self._unpacker.bodies(data, batches):
                yield from list(self._rows_of(bodies))
                done += len(bodies.batches)
        except CorruptBatch:
            for batch in batches[done:]:
                yield from self._decode_alone(data, batch)

    def _decode_alone(self, data: Bytes, batch: Framed) -> Iterator[pa.RecordBatch]:
        try:
            for bodies in self._unpacker.bodies(data, [batch]):
                yield from list(self._rows_of(bodies))
        except CorruptBatch as error:
            corrupt = CorruptRecords(self._wanted.place, batch.header.base_offset, str(error))
            log.warning("%s; continuing at offset %d", corrupt, batch.header.end)

    def _rows_of(self, bodies: DecompressedBodies) -> Iterator[pa.RecordBatch]:
        """Yield the records of decompressed batches that are in the range. Raises CorruptBatch."""
        records = read_records(bodies).within(self._wanted.start, self._wanted.end)
        for first in range(0, len(records), ROWS_MAX):
            yield self._builder.build(records[first : first + ROWS_MAX], bodies.buffer)

    def _overlaps(self, batch: Framed) -> bool:
        return batch.header.base_offset < self._wanted.end and batch.header.end > self._wanted.start
