"""The range reader of a Spark task: fetches an offset range and decodes it to Arrow record batches."""

import logging
from collections.abc import Iterator

import pyarrow as pa

from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import FetchedBatches, fetch
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.columns import Columns
from cordwood.spark.decode.arrow import Builder
from cordwood.spark.decode.batches import Framed, visible
from cordwood.spark.decode.decompression import DecompressedBodies, Unpacker
from cordwood.spark.decode.records import read_records
from cordwood.spark.errors import CorruptRecords
from cordwood.spark.ranges import OffsetRange
from cordwood.storage.errors import CorruptBatch

HOW_TO_SKIP = "set failOnCorruptRecords to false to skip what cannot be decoded"

log = logging.getLogger(__name__)

ROWS_MAX = 10_000
"""Maximum number of rows in a RecordBatch, the same as Spark's own."""


def read_range(
    settings: ClientSettings, wanted: OffsetRange, columns: Columns, *, may_skip_corrupt: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the records of an offset range that the isolation level makes visible, in order, each once.

    With `may_skip_corrupt`, skip batches that cannot be decoded. Raises OffsetsGone, whose `gone.end` is the offset to
    continue at; CorruptRecords; Unavailable; RequestRefused.
    """
    decoder = Decoder(wanted, columns, may_skip_corrupt=may_skip_corrupt)
    for fetched in fetch(ClusterReader(settings), wanted):
        yield from decoder.decode(fetched)


class Decoder:
    """A decoder of fetched batches to Arrow. Its decompression buffer is reused."""

    def __init__(self, wanted: OffsetRange, columns: Columns, *, may_skip_corrupt: bool = False) -> None:
        self._wanted, self._may_skip_corrupt = wanted, may_skip_corrupt
        self._unpacker = Unpacker()
        self._builder = Builder(columns, wanted.place, ROWS_MAX)

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Yield the records of one response that are in the range. Raises CorruptRecords."""
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
            raise CorruptRecords(self._wanted.place, offset, f"{error}; {HOW_TO_SKIP}") from error

    def _decode_what_can_be(self, data: bytes, batches: list[Framed]) -> Iterator[pa.RecordBatch]:
        """Decode batches together, as many as the buffer holds. After an error, decode the rest one by one."""
        done = 0
        try:
            for bodies in self._unpacker.bodies(data, batches):
                yield from list(self._rows_of(bodies))
                done += len(bodies.batches)
        except CorruptBatch:
            for batch in batches[done:]:
                yield from self._decode_alone(data, batch)

    def _decode_alone(self, data: bytes, batch: Framed) -> Iterator[pa.RecordBatch]:
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
