"""The range reader of a Spark task: fetches an offset range and decodes it to Arrow record batches."""

from collections.abc import Iterator

import pyarrow as pa

from cordwood.columnar.columns import Columns
from cordwood.columnar.decoder import Decoder
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import fetch
from cordwood.spark.client.settings import ClientSettings

HOW_TO_SKIP = "; set failOnCorruptRecords to false to skip what cannot be decoded"


def read_range(
    settings: ClientSettings, wanted: OffsetRange, columns: Columns, *, may_skip_corrupt: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the records of an offset range that the isolation level makes visible, in order, each once.

    With `may_skip_corrupt`, skip batches that cannot be decoded. Raises OffsetsGone, whose `gone.end` is the offset to
    continue at; CorruptRecords; OldFormat; Unavailable; RequestRefused.
    """
    decoder = Decoder(wanted, columns, may_skip_corrupt=may_skip_corrupt, how_to_skip=HOW_TO_SKIP)
    for fetched in fetch(ClusterReader(settings), wanted):
        yield from decoder.decode(fetched)
