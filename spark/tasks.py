"""Spark input partitions and the read of one of them, with the handling of lost offsets (failOnDataLoss)."""

import logging
from collections.abc import Generator, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cordwood.spark.columns import Columns
from cordwood.spark.errors import OffsetsGone, said_plainly
from cordwood.spark.range_reader import read_range
from cordwood.spark.ranges import OffsetRange
from cordwood.spark.read_options import ReadOptions
from cordwood.spark.survey import HOW_TO_GO_ON

log = logging.getLogger(__name__)


class OffsetRangePartition(InputPartition):
    """An input partition: the offset range of one task."""

    def __init__(self, part: OffsetRange) -> None:
        self.value = part


def read_part(options: ReadOptions, columns: Columns, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range. Raises OffsetsGone if some are gone, unless `failOnDataLoss` is false."""
    with said_plainly():
        left = part.value
        # For a plan without input partitions Spark passes one without a range.
        while left is not None:
            left = yield from _read_until_gone(options, columns, left)


def _read_until_gone(
    options: ReadOptions, columns: Columns, part: OffsetRange
) -> Generator[pa.RecordBatch, None, OffsetRange | None]:
    """Yield records up to the first gap. Return the range that is left after the gap, if any."""
    try:
        yield from read_range(options.client, part, columns, may_skip_corrupt=not options.fail_on_corrupt_records)
    except OffsetsGone as error:
        if options.fail_on_data_loss:
            raise OffsetsGone(error.gone, f"{error.why}; {HOW_TO_GO_ON}") from None
        log.warning("%s; continuing at offset %d", error, error.gone.end)
        return replace(part, start=error.gone.end) if error.gone.end < part.end else None
    return None
