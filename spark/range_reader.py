"""The range reader of a Spark task: reads an offset range from the archive and from brokers, as Arrow batches."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from cordwood.columnar.columns import Columns
from cordwood.columnar.decoder import Decoder
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.archive import TaskArchive
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.fetch import fetch
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.task_metrics import TaskMetrics

HOW_TO_SKIP = "; set failOnCorruptRecords to false to skip what cannot be decoded"


def read_range(
    settings: ClientSettings,
    wanted: OffsetRange,
    columns: Columns,
    *,
    may_skip_corrupt: bool = False,
    archive: TaskArchive | None = None,
    metrics: TaskMetrics | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield exactly the records of an offset range that the isolation level makes visible, in order, each once.

    With `may_skip_corrupt`, skip batches that cannot be decoded. Raises OffsetsGone, whose `gone.end` is the offset to
    continue at; CorruptRecords; OldFormat; Unavailable; RequestRefused.
    """
    metrics, rest = metrics or TaskMetrics(), wanted
    while rest.count:
        archived = archive.next_range(rest) if archive is not None else None
        tail = rest if archived is None else replace(rest, end=archived.start)
        decoder = _decoder(tail, columns, may_skip_corrupt)
        for fetched in fetch(ClusterReader(settings), tail):
            metrics.broker_bytes += len(fetched.data)
            yield from decoder.decode(fetched)
        if archive is None or archived is None:
            return
        decoder = _decoder(archived, columns, may_skip_corrupt)
        for fetched in archive.fetch(archived):
            metrics.archive_bytes += len(fetched.data)
            yield from decoder.decode(fetched)
        rest = replace(rest, start=archive.position)


def _decoder(wanted: OffsetRange, columns: Columns, may_skip_corrupt: bool) -> Decoder:
    return Decoder(wanted, columns, may_skip_corrupt=may_skip_corrupt, how_to_skip=HOW_TO_SKIP)
