"""Spark input partitions and the read of one of them, with the handling of lost offsets (failOnDataLoss)."""

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cordwood.archive.catalog import PartitionId
from cordwood.columnar.columns import Columns
from cordwood.columnar.errors import OffsetsGone
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.archive import ArchivedTask, TaskArchive
from cordwood.spark.client.delegation import for_executors, without_credentials
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.errors import said_plainly
from cordwood.spark.range_reader import read_range
from cordwood.spark.read_options import ReadOptions
from cordwood.spark.survey import HOW_TO_GO_ON
from cordwood.spark.task_metrics import TaskMetrics
from cordwood.storage.types import TopicPartition

log = logging.getLogger(__name__)


class OffsetRangePartition(InputPartition):
    """An input partition: the offset range of one task, and its connection settings. Its repr has no secret."""

    def __init__(self, part: OffsetRange, client: ClientSettings, archived: ArchivedTask | None = None) -> None:
        self.value, self.client, self.archived = part, client, archived


def partitions_of(
    options: ReadOptions,
    parts: Iterable[OffsetRange],
    archived: Mapping[TopicPartition, PartitionId],
    not_before_ms: int | None = None,
) -> list[InputPartition]:
    """Return the input partitions of these ranges. `archived` has the partitions that may be in the archive.

    Raises RequestRefused, Unavailable.
    """
    client, settings = for_executors(options.client), options.archive
    found: list[InputPartition] = []
    for part in parts:
        known = archived.get(part.place)
        task = None if settings is None or known is None else ArchivedTask(settings, known, not_before_ms)
        found.append(OffsetRangePartition(part, client, task))
    return found


def as_executors_see(options: ReadOptions) -> ReadOptions:
    """Return the options of a reader that Spark sends to executors, whose credentials may be in each partition."""
    return replace(options, client=without_credentials(options.client), archive=None)


def read_part(options: ReadOptions, columns: Columns, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range. Raises OffsetsGone if some were deleted, unless `failOnDataLoss` is false."""
    with said_plainly():
        # For a plan without input partitions Spark passes one without a range.
        if not isinstance(part, OffsetRangePartition):
            return
        options, metrics = replace(options, client=part.client), TaskMetrics()
        archive = None if part.archived is None else TaskArchive(part.archived, options.client.isolation)
        left: OffsetRange | None = part.value
        while left is not None:
            left = yield from _read_until_gone(options, columns, left, archive, metrics)
        if options.metrics_path is not None:
            metrics.write(options.metrics_path, part.value)


def _read_until_gone(
    options: ReadOptions, columns: Columns, part: OffsetRange, archive: TaskArchive | None, metrics: TaskMetrics
) -> Generator[pa.RecordBatch, None, OffsetRange | None]:
    """Yield records up to the first gap. Return the range that is left after the gap, if any."""
    skips = not options.fail_on_corrupt_records
    try:
        yield from read_range(options.client, part, columns, may_skip_corrupt=skips, archive=archive, metrics=metrics)
    except OffsetsGone as error:
        if options.fail_on_data_loss:
            raise OffsetsGone(error.gone, f"{error.why}; {HOW_TO_GO_ON}") from None
        log.warning("%s; continuing at offset %d", error, error.gone.end)
        return replace(part, start=error.gone.end) if error.gone.end < part.end else None
    return None
