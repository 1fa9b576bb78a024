"""The batch reader: offset ranges between two positions, reduced by pushed-down filters, planned on the driver."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from cordwood.columnar.columns import Columns
from cordwood.columnar.ranges import OffsetRange
from cordwood.spark.archive import borders, split
from cordwood.spark.errors import said_plainly
from cordwood.spark.filters import Narrowing, left_for_spark, useful
from cordwood.spark.planner import plan_input_partitions, ranges_between
from cordwood.spark.read_options import ReadOptions
from cordwood.spark.survey import Survey
from cordwood.spark.tasks import as_executors_see, partitions_of, read_part


class BatchReader(DataSourceReader):
    """The reader of spark.read. It connects to the cluster only when Spark asks for the partitions."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        """Take the options and the wanted columns."""
        self._options, self._columns = options, columns
        self._narrowing = Narrowing()

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors get."""
        return {**vars(self), "_options": as_executors_see(self._options)}

    def partitions(self) -> list[InputPartition]:
        """Return one input partition per task. Raises WrongOption, and OffsetsGone with failOnDataLoss."""
        with said_plainly():
            options, survey = self._options, Survey(self._options)
            ranges = list(self._ranges(survey))
            archived = survey.archived(each.place for each in ranges)
            if options.archive is not None:
                ranges = list(split(ranges, borders(options.archive, archived, options.client.isolation)))
            tasks = plan_input_partitions(ranges, tasks_min=options.tasks_min, records_max=options.records_per_task_max)
            return partitions_of(options, tasks, archived, self._narrowing.not_before_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_part(self._options, self._columns, partition)

    def _ranges(self, survey: Survey) -> Iterable[OffsetRange]:
        if self._options.cut is not None:
            starts, ends = survey.cut(self._options.cut)
            places = set(ends)
        else:
            places = survey.all_places()
            starts, ends = survey.starts(places), survey.ends(places)
        kept = {place for place in places if self._narrowing.keeps(place)}
        not_before_ms = self._narrowing.not_before_ms
        if not_before_ms is not None:
            in_time = survey.not_before(kept, not_before_ms)
            kept &= set(in_time)
            starts = {place: max(starts[place], in_time[place]) for place in kept}
        between = ranges_between({place: starts[place] for place in kept}, ends)
        return map(self._narrowing.clip, between)


class NarrowingBatchReader(BatchReader):
    """A batch reader with filter pushdown, only for the option `filterPushdown`.

    Spark shares a DataFrame's plan among all queries on it: two different filters on one DataFrame both apply to each
    query, so that records are missing (seen in 4.3). A reader that takes filters fails in a session without pushdown.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that reduce reading. Return those that Spark must still evaluate."""
        self._narrowing = useful(filters)
        return left_for_spark(filters)
