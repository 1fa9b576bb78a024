"""The driver and the tasks of an exactly-once write, without Spark, and the points at which a driver crashes."""

from itertools import count

import pyarrow as pa
from spark_scenario import Log, read_batch

from cordwood.spark.client.coordinators import SparkCoordinators
from cordwood.spark.exactly_once.commit import abort, commit
from cordwood.spark.exactly_once.decisions import Decision, Decisions
from cordwood.spark.exactly_once.sink import prepare
from cordwood.spark.exactly_once.transactional_ids import is_of_a_task
from cordwood.spark.exactly_once.writes import ExactlyOnceOptions, PreparedTransaction, WriteId
from cordwood.spark.sink_options import SinkOptions, WriteMode, sink_options

_names = count(1)


class Query:
    """A streaming query that writes to a topic of two partitions."""

    def __init__(self, log: Log, **given: str) -> None:
        self.log, self.name, self.topic = log, f"query-{next(_names)}", log.topic(2)
        self._given = {"bootstrapServers": log.bootstrap, "topic": self.topic, "deliveryGuarantee": "exactly-once"}
        self._given |= {"retryTimeoutMs": "20s", **given}

    @property
    def options(self) -> SinkOptions:
        fields = [("value", "string"), ("partition", "int")]
        return sink_options(self._given, fields, overwrite=False, mode=WriteMode.STREAM)

    @property
    def once(self) -> ExactlyOnceOptions:
        assert self.options.exactly_once is not None
        return self.options.exactly_once

    def task(self, batch: int, *values: str, partition: int = 0) -> PreparedTransaction:
        """Write a task's rows. Return its transaction, which is open."""
        prepared = prepare(self.options, self.once, WriteId(self.name, batch), iter([_rows(values, partition)]))
        assert prepared.transaction is not None
        assert prepared.transaction.records == len(values)
        return prepared.transaction

    def commit(self, batch: int, *prepared: PreparedTransaction) -> None:
        """Commit a micro-batch as the driver does."""
        commit(self.once, WriteId(self.name, batch), prepared)

    def abort(self, batch: int, *prepared: PreparedTransaction) -> None:
        """Abort a micro-batch as the driver does."""
        abort(self.once, WriteId(self.name, batch), prepared)

    def decide_and_crash(self, batch: int, *prepared: PreparedTransaction, ended: int = 0) -> None:
        """Commit a micro-batch as a driver that crashes after it has ended some of the transactions."""
        with Decisions(self.once, self.name) as decisions:
            decisions.decide(Decision(batch, prepared))
        for each in prepared[:ended]:
            assert self.end(each, commit=True)

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """End one transaction. An abort is what a timeout, too, makes of it."""
        with SparkCoordinators(self.once.client) as coordinators:
            return coordinators.end(prepared.transactional_id, prepared.producer, commit=commit)

    def committed(self) -> list[str]:
        """Return the values that a read_committed reader sees, sorted."""
        return read_batch(self.log.bootstrap, subscribe=self.topic)

    def written(self) -> list[str]:
        """Return all values in the log, sorted: also those of open and aborted transactions."""
        return read_batch(self.log.bootstrap, subscribe=self.topic, isolation="read_uncommitted")

    def open_transactions(self) -> list[str]:
        """Return the transactional ids of the tasks whose transactions are open."""
        with SparkCoordinators(self.once.client) as coordinators:
            return [*coordinators.all_ongoing(lambda each: is_of_a_task(each, self.name))]


def _rows(values: tuple[str, ...], partition: int) -> pa.RecordBatch:
    places = pa.array([partition] * len(values), pa.int32())
    return pa.record_batch({"value": pa.array(values, pa.string()), "partition": places})
