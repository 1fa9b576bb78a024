"""The exactly-once Spark sink: each task prepares a transaction, and the driver commits those of a write together."""

import logging
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cordwood.spark.client.coordinators import SparkCoordinators
from cordwood.spark.errors import NotWritten, UserError, said_plainly
from cordwood.spark.exactly_once.commit import abort, commit
from cordwood.spark.exactly_once.producers import begin_producer
from cordwood.spark.exactly_once.transactional_ids import leases
from cordwood.spark.exactly_once.writes import ExactlyOnceOptions, Prepared, PreparedTransaction, WriteId
from cordwood.spark.sink import Delivery, Row, rows_of
from cordwood.spark.sink_options import Setting, SinkOptions
from cordwood.storage.types import TopicPartition

ABORT_S = 5.0
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark gives to the tasks of a micro-batch."""

log = logging.getLogger(__name__)


class ExactlyOnceBatchSink(DataSourceArrowWriter):
    """The writer of df.write with deliveryGuarantee=exactly-once."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions) -> None:
        """Take the options. Do not connect yet."""
        self._options, self._exactly_once = options, exactly_once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Write all rows of one task in a transaction, and leave it open. Raises NotWritten, UserError, ReadError."""
        assert self._exactly_once.write is not None, "a batch write without a name"
        return prepare(self._options, self._exactly_once, self._exactly_once.write, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write, unless it is committed already. Raises NotWritten, PartlyWritten, ReadError."""
        commit_all(self._exactly_once, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write, unless it is committed already."""
        abort_all(self._exactly_once, messages)


class ExactlyOnceStreamSink(DataSourceStreamArrowWriter):
    """The writer of df.writeStream with deliveryGuarantee=exactly-once."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions) -> None:
        """Take the options. Do not connect yet."""
        self._options, self._exactly_once = options, exactly_once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Write all rows of one task in a transaction, and leave it open. Raises NotWritten, UserError, ReadError."""
        return prepare(self._options, self._exactly_once, _micro_batch(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Commit the micro-batch, unless it is committed already. Raises NotWritten, PartlyWritten, ReadError."""
        commit_all(self._exactly_once, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Abort the micro-batch, unless it is committed already."""
        abort_all(self._exactly_once, messages)


def prepare(
    options: SinkOptions, exactly_once: ExactlyOnceOptions, write: WriteId, batches: Iterator[pa.RecordBatch]
) -> Prepared:
    """Write rows in a transaction that stays open, and return it. Without rows, there is none."""
    with said_plainly():
        rows = chain.from_iterable(map(rows_of, batches))
        first = next(rows, None)
        if first is None:
            return Prepared(write, None)
        delivery = TransactionalDelivery(options, exactly_once, write, first)
        try:
            for row in chain((first,), rows):
                delivery.send(row)
            return Prepared(write, delivery.prepare())
        except BaseException:
            delivery.abort()
            raise


def commit_all(options: ExactlyOnceOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Commit the write that these tasks have prepared."""
    with said_plainly():
        for write, transactions in _writes_of(messages).items():
            commit(options, write, transactions)


def abort_all(options: ExactlyOnceOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Abort the write that these tasks have prepared, as far as they have."""
    with said_plainly():
        for write, transactions in _writes_of(messages).items():
            abort(options, write, transactions)


class TransactionalDelivery(Delivery):
    """One task's producer in a transaction that it begins, and that the driver ends."""

    def __init__(self, options: SinkOptions, exactly_once: ExactlyOnceOptions, write: WriteId, first: Row) -> None:
        """Begin the transaction of a task with this first row. Raises UserError, NotWritten."""
        self._client = exactly_once.client
        self._transactional_id = leases.transactional_id(write, exactly_once.timeout_ms)
        transactional: dict[str, Setting] = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": exactly_once.timeout_ms,
        }
        super().__init__(options, transactional)
        self._last: Message | None = None
        try:
            begin_producer(self._producer, options.topic or first[0], exactly_once.client.retry_timeout_ms / 1000)
            self._producer.begin_transaction()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise UserError(
                    f"transactionTimeoutMs is {exactly_once.timeout_ms}: the brokers allow less"
                    " (transaction.max.timeout.ms)"
                ) from None
            raise NotWritten(f"no transaction can begin ({reason.str()})") from None

    def prepare(self) -> PreparedTransaction:
        """Wait until all records are acknowledged. Return the transaction, which stays open."""
        records = self.finish()
        with SparkCoordinators(self._client) as coordinators:
            ongoing = coordinators.ongoing(self._transactional_id)
        last = self._last
        if ongoing is None or last is None:
            raise NotWritten(
                f"the transaction {self._transactional_id} was aborted before the task ended, probably by its timeout;"
                " set a larger transactionTimeoutMs, or write less at a time"
            )
        witness = TopicPartition(last.topic() or "", last.partition() or 0)
        return PreparedTransaction(self._transactional_id, ongoing.producer, records, witness, last.offset() or 0)

    def abort(self) -> None:
        """Abort the transaction. If that fails, the next commit of the write or the timeout aborts it."""
        try:
            self._producer.abort_transaction(ABORT_S)
        except KafkaException as error:
            log.warning("the transaction %s is left open: %s", self._transactional_id, error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        self._last = message


def _micro_batch() -> WriteId:
    """Return the micro-batch of this task."""
    task = TaskContext.get()
    query, batch = (task.getLocalProperty(name) if task else None for name in (QUERY_ID, BATCH_ID))
    if not query or not batch:
        raise NotWritten("Spark does not say which micro-batch this is: exactly-once delivery is not possible")
    return WriteId(query, int(batch))


def _writes_of(messages: Iterable[WriterCommitMessage | None]) -> dict[WriteId, list[PreparedTransaction]]:
    """Return the transactions by write. The messages of one commit are of one write."""
    found: dict[WriteId, list[PreparedTransaction]] = {}
    for message in messages:
        if isinstance(message, Prepared):
            of_write = found.setdefault(message.write, [])
            if message.transaction is not None:
                of_write.append(message.transaction)
    return found
