"""A write, the transactions that its tasks have prepared, and the options of exactly-once delivery."""

from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from cordwood.spark.client.settings import ClientSettings
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition


class WriteId(NamedTuple):
    """A write that happens once: a query with a micro-batch, or the name and version of a batch write."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.name}"


class PreparedTransaction(NamedTuple):
    """An open transaction of one task, whose records are all acknowledged."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    records: int
    witness: TopicPartition
    """The partition of one of its records, which is visible to read_committed once the transaction is committed."""
    witness_offset: int


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """A task's commit message. A task without rows has no transaction."""

    write: WriteId
    transaction: PreparedTransaction | None


@dataclass(frozen=True, slots=True)
class ExactlyOnceOptions:
    """The options of exactly-once delivery. `write` is None for a stream, whose writes are its micro-batches."""

    client: ClientSettings
    write: WriteId | None
    timeout_ms: int
    commits_topic: str
    fail_on_missing_commit: bool
