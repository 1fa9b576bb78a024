"""The streaming reader: offsets of each micro-batch, admission limits, and detection of data loss."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cordwood.columnar.columns import Columns
from cordwood.spark.admission import admit, backlog_of, should_wait
from cordwood.spark.errors import DataLost, said_plainly
from cordwood.spark.offsets import Json, Offsets, batch_between, ends_of, first_end, to_json
from cordwood.spark.planner import plan_input_partitions, ranges_between
from cordwood.spark.read_options import ReadOptions
from cordwood.spark.survey import HOW_TO_GO_ON, Survey
from cordwood.spark.tasks import as_executors_see, partitions_of, read_part
from cordwood.storage.types import TopicPartition

log = logging.getLogger(__name__)

SETTLING_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses before a smaller log end is believed: a deposed leader may return an older end until it is fenced."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of spark.readStream: on the driver as long as the query runs; its copies in the tasks only read."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        """Take the options and the wanted columns. Do not connect yet."""
        self._options, self._columns = options, columns
        self._survey = Survey(options)
        self._began: Json | None = None
        self._latest: Offsets | None = None
        self._targets: Offsets | None = None
        self._last_batch_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors get, which only read."""
        options = as_executors_see(self._options)
        return {**vars(self), "_options": options, "_survey": Survey(options)}

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name, as all below
        """Return the start offsets of a new query. Spark calls it twice and requires the same result."""
        with said_plainly():
            if self._began is None:
                starts = self._survey.starts(self._survey.all_places())
                targets = self._targets or {}
                self._began = to_json({place: min(at, targets.get(place, at)) for place, at in starts.items()})
        return self._began

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options. Spark may pass another one to `latestOffset`, as with Trigger.Once."""
        limits = self._options.limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        return ReadAllAvailable() if limits.records_min is None else ReadMinRows(limits.records_min)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return the end offsets of the next batch; `start` itself if there are no records, or too few."""
        with said_plainly():
            known = ends_of(start)
            available = self._settled(known)
            starts = self._starts(known, available)
            if self._should_wait(backlog_of(starts, available), limit):
                return start
            end = to_json(admit(starts, available, limit.max_rows) if isinstance(limit, ReadMaxRows) else available)
        if start == self._began:
            end = first_end(start, end)
        elif end == to_json(known):
            return start
        self._last_batch_s = time.monotonic()
        return end

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the last known log ends. The query progress shows them next to the batch's end."""
        return None if self._latest is None else to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the current log ends as the end of the query."""
        with said_plainly():
            self._targets = self._look()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks of one batch. A batch that is run again has the same tasks."""
        with said_plainly():
            starts, ends = batch_between(start, end)
            starts |= self._beginnings(set(ends) - set(starts), _shrunk(starts, ends))
            options = self._options
            ranges = ranges_between(starts, ends)
            parts = plan_input_partitions(ranges, tasks_min=options.tasks_min, records_max=options.records_per_task_max)
            return partitions_of(options, parts, self._survey.archived(part.place for part in parts))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return read_part(self._options, self._columns, partition)

    def _look(self) -> Offsets:
        self._latest = self._survey.latest(self._survey.places())
        return self._latest

    def _settled(self, known: Offsets) -> Offsets:
        """Return the log end of each partition. Ask again while a log seems to have become shorter."""
        available = self._look() if self._targets is None else self._targets
        for pause_s in SETTLING_PAUSES_S:
            if not _shrunk(known, available):
                break
            time.sleep(pause_s)
            available = self._look()
        return available

    def _starts(self, known: Offsets, available: Offsets) -> Offsets:
        """Return the start offset of each existing partition.

        Raises DataLost if records are lost, unless `failOnDataLoss` is false.
        """
        new, shrunk = set(available) - set(known), _shrunk(known, available)
        self._note_loss(set(known) - set(available), "missing: the topic was probably deleted")
        begins = self._beginnings(new, shrunk)
        return {place: begins[place] if place in begins else known[place] for place in available}

    def _beginnings(self, new: set[TopicPartition], shrunk: set[TopicPartition]) -> Offsets:
        """Return the log start offsets of partitions that are new or were recreated. Raises DataLost, as above."""
        begins = self._survey.earliest(new | shrunk)
        self._note_loss(
            shrunk, "shorter than the records already read: the topic was probably deleted and created again"
        )
        self._note_loss({place for place in new if begins[place]}, "new, and its first records are already deleted")
        return begins

    def _note_loss(self, places: set[TopicPartition], what: str) -> None:
        if not places:
            return
        sentence = f"{', '.join(map(str, sorted(places)))}: {what}"
        if self._options.fail_on_data_loss:
            raise DataLost(f"{sentence}; {HOW_TO_GO_ON}")
        log.warning("%s; continuing with the remaining records", sentence)

    def _should_wait(self, backlog: int, limit: ReadLimit) -> bool:
        # With ReadAllAvailable Spark will not ask again. With Trigger.AvailableNow no more records follow.
        if isinstance(limit, ReadAllAvailable) or self._targets is not None:
            return False
        since_last_ms = None if self._last_batch_s is None else (time.monotonic() - self._last_batch_s) * 1000
        return should_wait(self._options.limits, backlog, since_last_ms)


def _shrunk(known: Offsets, available: Offsets) -> set[TopicPartition]:
    return {place for place in available if place in known and available[place] < known[place]}
