"""The at-least-once Spark sink: writes rows as records, with an idempotent producer and acks=all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cordwood.client.security import OPEN
from cordwood.columnar.columns import Column
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.errors import NotWritten, UserError, said_plainly
from cordwood.spark.sink_options import Setting, SinkOptions

ROOM_WAIT_S = 0.1
ANY_PARTITION = -1

Headers = list[tuple[str, str | bytes | None]]
Row = tuple[str | None, bytes | None, bytes | None, int | None, list[dict[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """A task's commit message: the number of acknowledged records."""

    records: int


class _Sink:
    """The writer that Spark sends to each task."""

    def __init__(self, options: SinkOptions) -> None:
        """Take the options. Do not connect yet."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows of one task, and return once all in-sync replicas have acknowledged them (acks=all).

        Raises NotWritten, and UserError for an invalid row.
        """
        with said_plainly():
            delivery = Delivery(self._options)
            for batch in iterator:
                for row in rows_of(batch):
                    delivery.send(row)
            return Written(delivery.finish())


class BatchSink(_Sink, DataSourceArrowWriter):
    """The writer of df.write."""


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """The writer of df.writeStream. A retried batch is written again, so there is nothing to commit or abort."""


class Delivery:
    """One task's producer, with its first delivery error."""

    def __init__(self, options: SinkOptions, more: Mapping[str, Setting] | None = None) -> None:
        """Create the producer, with more settings than those of the options. It connects in the background.

        Raises RequestRefused for credentials that brokers refuse, and Unavailable.
        """
        self._topic, security = options.topic, options.client.security
        if security != OPEN:
            # librdkafka repeats a connection that is refused until records time out, and gives no reason then.
            ClusterReader(options.client).brokers()
        self._producer = Producer({**options.producer, **security.for_librdkafka(), **(more or {})})
        self._failed: NotWritten | None = None
        self._sent = 0

    def send(self, row: Row) -> None:
        """Queue one record. The option `topic` overrides the row's topic. Block while the producer's queue is full.

        Raises NotWritten, and UserError for an invalid row.
        """
        topic, key, value, partition, headers = row
        where = self._topic or topic
        if where is None:
            raise UserError("a row has no topic: set the column topic in every row, or the option topic")
        while not self._was_taken(where, key, value, _checked(partition), [_pair(each) for each in headers or ()]):
            self._producer.poll(ROOM_WAIT_S)
        self._sent += 1
        self._producer.poll(0)
        self._raise_failure()

    def finish(self) -> int:
        """Wait until all records are acknowledged. Return their number. Raises NotWritten."""
        self._producer.flush()
        self._raise_failure()
        return self._sent

    def _was_taken(self, topic: str, key: bytes | None, value: bytes | None, partition: int, headers: Headers) -> bool:
        try:
            self._producer.produce(topic, value, key, partition, self._delivered, headers=headers)
        except BufferError:
            return False
        except KafkaException as error:
            raise _not_written(topic, partition, error.args[0]) from None
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = _not_written(message.topic(), message.partition(), error)

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return a RecordBatch's rows as record fields; None for missing columns."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    for name in (Column.KEY, Column.VALUE):
        if name in columns:
            columns[name] = columns[name].cast(pa.large_binary())
    parts = (Column.TOPIC, Column.KEY, Column.VALUE, Column.PARTITION, Column.HEADERS)
    lists = [columns[name].to_pylist() if name in columns else [None] * batch.num_rows for name in parts]
    return zip(*lists, strict=True)


def _checked(partition: int | None) -> int:
    if partition is not None and partition < 0:
        raise UserError(f"a row has partition {partition}: it must be 0 or more, or null to choose it by key")
    return ANY_PARTITION if partition is None else partition


def _pair(header: dict[str, Any]) -> tuple[str, bytes | None]:
    if header["key"] is None:
        raise UserError("a row has a header without a key: give each header a key, or remove it")
    return header["key"], header["value"]


def _not_written(topic: str | None, partition: int | None, error: KafkaError) -> NotWritten:
    where = topic if partition in (None, ANY_PARTITION) else f"partition {partition} of {topic}"
    return NotWritten(f"{where} refused a record ({error.str()}): the task failed and may be run again")
