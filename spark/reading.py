"""What one task of Spark does: a range of offsets from its leaders, as Arrow."""

from collections.abc import Iterator

import pyarrow as pa

from cordwood.spark.client.cluster import Cluster
from cordwood.spark.client.fetching import Fetched, fetch
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.columns import Columns
from cordwood.spark.decode.arrow import Builder
from cordwood.spark.decode.framing import Framed, visible
from cordwood.spark.decode.records import read_records
from cordwood.spark.decode.unpacking import Unpacker
from cordwood.spark.errors import CorruptRecords
from cordwood.spark.ranges import OffsetRange
from cordwood.storage.errors import CorruptBatch

ROWS_MAX = 10_000
"""In one RecordBatch, as many as Spark itself puts into one."""


def read_range(settings: ClientSettings, wanted: OffsetRange, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Exactly the records with offsets of the range that the isolation lets a reader see, in order, each once.

    Raises OffsetsGone, whose `gone.end` is where reading can go on; CorruptRecords; Unavailable; Refused.
    """
    decoder = Decoder(wanted, columns)
    for fetched in fetch(Cluster(settings), wanted):
        yield from decoder.decode(fetched)


class Decoder:
    """Makes RecordBatches of answers. Its buffer for unpacking is used again from one to the next."""

    def __init__(self, wanted: OffsetRange, columns: Columns) -> None:
        self._wanted = wanted
        self._unpacker = Unpacker()
        self._builder = Builder(columns, wanted.place, ROWS_MAX)

    def decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """The records of one answer that are in the range. Raises CorruptRecords."""
        offset = fetched.batches[0].header.base_offset
        try:
            seen = visible(fetched.data, fetched.batches, fetched.aborted)
            for bodies in self._unpacker.bodies(fetched.data, filter(self._overlaps, seen)):
                offset = bodies.batches[0].header.base_offset
                records = read_records(bodies).within(self._wanted.start, self._wanted.end)
                for first in range(0, len(records), ROWS_MAX):
                    yield self._builder.build(records[first : first + ROWS_MAX], bodies.buffer)
        except CorruptBatch as error:
            raise CorruptRecords(self._wanted.place, offset, str(error)) from error

    def _overlaps(self, batch: Framed) -> bool:
        return batch.header.base_offset < self._wanted.end and batch.header.end > self._wanted.start
