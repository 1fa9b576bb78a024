"""The decisions of writes: a topic with one record for each committed version, which names its transactions.

A driver decides in its own transaction, under a transactional id of the write. By that it fences an earlier driver of
the same write, which may still run: of two drivers, only the last one can decide. The topic keeps decisions for
RETENTION_MS, and the last one of each write is found from the end of the log.
"""

import json
import time
from dataclasses import dataclass, replace
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.ranges import EARLIEST, LATEST, Isolation, OffsetRange
from cordwood.spark.client.backoff import Backoff
from cordwood.spark.client.cluster import ClusterReader
from cordwood.spark.client.connection import ConnectionFailed
from cordwood.spark.client.settings import ClientSettings
from cordwood.spark.errors import NotWritten, RequestRefused
from cordwood.spark.exactly_once.producers import begin_producer
from cordwood.spark.exactly_once.transactional_ids import decider_of
from cordwood.spark.exactly_once.writes import ExactlyOnceOptions, PreparedTransaction
from cordwood.spark.range_reader import read_range
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

PARTITION = 0
REPLICAS_MAX = 3
RETENTION_MS = 30 * 86_400_000
DECISION_TIMEOUT_MS = 30_000
"""The timeout of a decision's transaction. As long as one is open, drivers of other writes wait to read the topic."""
FIRST_OFFSETS = 16

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


@dataclass(frozen=True, slots=True)
class Decision:
    """A version of a write that is committed: all these transactions, and no others."""

    version: int
    transactions: tuple[PreparedTransaction, ...]

    def encode(self) -> bytes:
        """Return the value of the decision's record."""
        rows = [
            (
                each.transactional_id,
                each.producer.producer_id,
                each.producer.epoch,
                each.records,
                each.witness.topic,
                each.witness.partition,
                each.witness_offset,
            )
            for each in self.transactions
        ]
        return json.dumps({"version": self.version, "transactions": rows}).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Decision":
        """Return the decision of a record's value."""
        fields = json.loads(value)
        return cls(
            fields["version"],
            tuple(
                PreparedTransaction(
                    transactional_id, ProducerIdAndEpoch(producer_id, epoch), records, TopicPartition(topic, at), offset
                )
                for transactional_id, producer_id, epoch, records, topic, at, offset in fields["transactions"]
            ),
        )


def readable_end(client: ClientSettings, place: TopicPartition) -> int:
    """Return the end of all records of a partition, once no transaction is open below it. Raises ReadError."""
    everything = ClusterReader(replace(client, isolation=Isolation.READ_UNCOMMITTED))
    committed = ClusterReader(replace(client, isolation=Isolation.READ_COMMITTED))
    end = everything.offsets({place: LATEST})[place]
    backoff = Backoff(f"read {place} to its end", client.retry_timeout_ms)
    while committed.offsets({place: LATEST})[place] < end:
        backoff.wait(ConnectionFailed(f"another driver has an open transaction in {place}"))
    return end


class Decisions:
    """The decisions of one write, for the one driver that may decide."""

    def __init__(self, options: ExactlyOnceOptions, name: str) -> None:
        """Take the options and the name of the write. Do not connect yet."""
        self._name, self._topic = name, options.commits_topic
        self._client = replace(options.client, isolation=Isolation.READ_COMMITTED)
        self._timeout_s = self._client.retry_timeout_ms / 1000
        self._cluster = ClusterReader(self._client)

    def __enter__(self) -> Self:
        """Fence all earlier drivers of the write. Raises NotWritten, ReadError."""
        if not self._cluster.partitions([self._topic]):
            self._create_topic()
        self._producer = Producer(
            {
                **self._for_librdkafka(),
                "transactional.id": decider_of(self._name),
                "transaction.timeout.ms": DECISION_TIMEOUT_MS,
                "compression.type": "zstd",
            }
        )
        try:
            begin_producer(self._producer, self._topic, self._timeout_s)
        except KafkaException as error:
            raise NotWritten(f"the driver cannot begin to commit {self._name}: {error.args[0].str()}") from None
        return self

    def __exit__(self, *_: object) -> None:
        del self._producer

    def last(self) -> Decision | None:
        """Return the last decision. Raises ReadError."""
        place = TopicPartition(self._topic, PARTITION)
        top, begin = readable_end(self._client, place), self._cluster.offsets({place: EARLIEST})[place]
        offsets = FIRST_OFFSETS
        while top > begin:
            bottom = max(begin, top - offsets)
            found = self._values(OffsetRange(*place, bottom, top))
            if found:
                return Decision.decode(found[-1])
            top, offsets = bottom, 4 * offsets
        return None

    def decide(self, decision: Decision) -> None:
        """Commit a version. Raises NotWritten: then it is not committed, or another driver finds that it is."""
        try:
            self._producer.begin_transaction()
            self._producer.produce(self._topic, decision.encode(), self._name, PARTITION)
            self._commit_transaction()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() in FENCED:
                raise NotWritten(f"another driver has begun to commit {self._name}, and only one may run") from None
            raise NotWritten(f"the decision about {self._name} was not acknowledged ({reason.str()})") from None

    def _values(self, wanted: OffsetRange) -> list[bytes]:
        tables = read_range(self._client, wanted, Columns((Column.KEY, Column.VALUE)))
        pairs = (pair for table in tables for pair in zip(*(each.to_pylist() for each in table.columns), strict=True))
        return [value for key, value in pairs if key == self._name.encode()]

    def _commit_transaction(self) -> None:
        """Commit the decision's transaction, again as long as its outcome is unknown."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.commit_transaction(max(0.1, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise

    def _create_topic(self) -> None:
        """Create the topic, with three replicas if the cluster has the brokers."""
        replicas = min(REPLICAS_MAX, len(self._cluster.brokers()))
        config = {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(RETENTION_MS),
            "min.insync.replicas": str(max(1, replicas - 1)),
        }
        admin = AdminClient(self._for_librdkafka())
        created = admin.create_topics([NewTopic(self._topic, 1, replicas, config=config)])[self._topic]
        try:
            created.result(self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RequestRefused(f"the topic {self._topic} cannot be created: {error.args[0].str()}") from None

    def _for_librdkafka(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(map(str, self._client.bootstrap)),
            "client.id": self._client.client_id,
            "log_level": 0,
            **self._client.security.for_librdkafka(),
        }
