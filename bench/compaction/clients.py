"""Clients of the comparison: producers that write a history in one order, and a consumer of whole partitions."""

import contextlib
import hashlib
import random
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cordwood.bench.compaction.history import TRANSACTIONAL, HistoryPiece, TransactionEnd
from cordwood.chaos.live.process import wait_for

ANSWER_S = 60.0
SILENCE_S = 30.0
VALUE_BYTES = 88
FILLER_KEYS, FILLER_VALUE_BYTES = 10, 1000
CODECS = ("none", "lz4", "zstd", "snappy")
"""Codec of each producer."""


class ConsumedRecord(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp: int


def create_topic(bootstrap: str, name: str, partitions: int, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, config=configs)])[name].result(ANSWER_S)


class Writers:
    """The producers of a history. A piece, with its markers, is in the log before the next one is sent."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, start_ms: int) -> None:
        """Record N of the history has the time `start_ms` + N."""
        self._topic, self._partitions, self._start_ms = topic, partitions, start_ms
        self._producers = [self._producer(bootstrap, number) for number in range(TRANSACTIONAL + 1)]
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._ends = [0] * partitions
        self._open: dict[int, set[int]] = {}
        """Partitions of each open transaction, by producer."""

    def write(self, history: Iterable[HistoryPiece]) -> None:
        """Write all pieces. Raises KafkaException."""
        for piece in history:
            producer = self._producers[piece.producer]
            is_transactional = piece.producer < TRANSACTIONAL
            if is_transactional and piece.producer not in self._open:
                producer.begin_transaction()
                self._open[piece.producer] = set()
            for row in piece.rows:
                value, partition = None if row.value is None else value_of(row.value), row.key % self._partitions
                self._send(producer, key_of(row.key), value, partition, self._start_ms + row.number)
                self._ends[partition] += 1
                if is_transactional:
                    self._open[piece.producer].add(partition)
            _flush(producer)
            if is_transactional and piece.end is not TransactionEnd.OPEN:
                (producer.commit_transaction if piece.end is TransactionEnd.COMMIT else producer.abort_transaction)(
                    ANSWER_S
                )
                self._await_markers(self._open.pop(piece.producer))

    def _await_markers(self, partitions: set[int]) -> None:
        """Wait until an ended transaction has its markers: Kafka acknowledges its end before. Raises KafkaException."""
        for partition in partitions:
            self._ends[partition] += 1
        wanted = {TopicPartition(self._topic, partition): OffsetSpec.latest() for partition in partitions}

        def are_written() -> bool:
            found = self._admin.list_offsets(wanted).items()
            return all(answer.result(ANSWER_S).offset == self._ends[place.partition] for place, answer in found)

        if wanted and not wait_for(are_written, ANSWER_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"partitions {sorted(partitions)} lack a marker"))

    def fill(self, segment_bytes: int) -> None:
        """Append more than a segment of other keys to each partition, so that all before may be compacted."""
        producer, rng = self._producers[TRANSACTIONAL], random.Random(segment_bytes)
        for partition in range(self._partitions):
            for number in range(2 * segment_bytes // FILLER_VALUE_BYTES):
                # Random bytes: a codec must not make them small.
                value = rng.randbytes(FILLER_VALUE_BYTES)
                self._send(producer, f"filler-{number % FILLER_KEYS}", value, partition, 0)
        _flush(producer)

    def _send(self, producer: Producer, key: str, value: bytes | None, partition: int, timestamp: int) -> None:
        while True:
            try:
                producer.produce(self._topic, key=key, value=value, partition=partition, timestamp=timestamp)
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _producer(self, bootstrap: str, number: int) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": CODECS[number],
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
        }
        if number == TRANSACTIONAL:
            return Producer(settings)
        producer = Producer({**settings, "transactional.id": f"compaction-{number}", "transaction.timeout.ms": 600_000})
        producer.init_transactions(ANSWER_S)
        return producer


def read(bootstrap: str, topic: str, partitions: int, isolation: str) -> tuple[list[ConsumedRecord], list[int]]:
    """Return all records of the topic, and the position after each partition. Raises KafkaException."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "comparison",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    entries: list[ConsumedRecord] = []
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        left, silent_since = set(range(partitions)), time.perf_counter()
        while left:
            messages = consumer.consume(10_000, 0.2)
            if messages:
                silent_since = time.perf_counter()
            elif time.perf_counter() - silent_since > SILENCE_S:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"partitions {sorted(left)} do not end"))
            for message in messages:
                error = message.error()
                if error is None:
                    entries.append(_entry(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        positions = consumer.position([TopicPartition(topic, index) for index in range(partitions)])
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, place.partition))[1] for place in positions]
    return entries, ends


def _entry(message: Message) -> ConsumedRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "it has no error"  # noqa: PT018
    return ConsumedRecord(partition, offset, (message.key() or b"").decode(), message.value(), message.timestamp()[1])


def key_of(number: int) -> str:
    return f"key-{number:06}"


def value_of(number: int) -> bytes:
    digest = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=VALUE_BYTES // 2).hexdigest()
    return f"{number:010} {digest}".encode()


def is_filler(entry: ConsumedRecord) -> bool:
    return entry.key.startswith("filler-")


def _flush(producer: Producer) -> None:
    left = producer.flush(ANSWER_S)
    if left:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records were not acknowledged"))
