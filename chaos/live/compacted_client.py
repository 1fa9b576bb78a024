"""A producer of keyed records on a compacted topic, and a consumer that compares what is left with what it sent."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from cordwood.chaos.checks.anomaly import Anomaly
from cordwood.chaos.live.load_clients import QUICK
from cordwood.chaos.live.process import wait_for
from cordwood.chaos.live.security import client_settings

PARTITIONS, KEYS = 3, 60
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
    "max.compaction.lag.ms": "1000",
}
PER_SECOND = 400
TOMBSTONES = 0.15
VALUE_BYTES = 200
ANSWERED_S, CLEANED_S, SILENCE_S = 120.0, 120.0, 30.0
POLL_S = 1.0

Value = bytes | None
"""None deletes the key."""


@dataclass(slots=True)
class SentKey:
    """What may be the newest value of a key: that of the last acknowledged record, or of one sent after it."""

    acknowledged: int = -1
    values: dict[int, Value] = field(default_factory=dict)
    """By number of the record."""


@dataclass(slots=True)
class Left:
    """The records that a consumer has read from the topic."""

    records: dict[tuple[int, int], tuple[bytes, Value]] = field(default_factory=dict)
    """By partition and offset."""
    newest: dict[bytes, Value] = field(default_factory=dict)


class CompactedClient:
    """One idempotent producer in a thread of its own. Half of the keys are deleted at the end."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap, self._topic, self._rng = bootstrap, topic, random.Random(seed)
        settings = dict(setting.split("=") for setting in QUICK)
        own = {"enable.idempotence": True, "delivery.timeout.ms": 100_000}
        self._producer = Producer({**client_settings(bootstrap), **settings, **own})
        self._keys = {b"key-%d" % number: SentKey() for number in range(KEYS)}
        self._records: dict[tuple[int, int], tuple[bytes, Value]] = {}
        self._number = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.acknowledged = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, delete half of the keys, and wait for all answers. Raises TimeoutError."""
        self._closing.set()
        self._thread.join()
        for key in self._retired():
            self._produce(key, None)
        self._fill()

    def _fill(self) -> None:
        """Write the keys that are kept once more: cleaners look at a log again when there is something new."""
        for key in list(self._keys)[1::2]:
            self._produce(key, self._value())
        if self._producer.flush(ANSWERED_S):
            raise TimeoutError(f"records of {self._topic} were not answered within {ANSWERED_S:.0f} s")

    def anomalies(self) -> Iterator[Anomaly]:
        """Wait until the deleted keys are removed, and yield the records that differ from the sent ones.

        Raises KafkaException.
        """
        left = self.read()

        def is_clean() -> bool:
            nonlocal left
            left = self.read()
            if not set(self._retired()) & {key for key, _ in left.records.values()}:
                return True
            self._fill()
            time.sleep(POLL_S)
            return False

        if not wait_for(is_clean, CLEANED_S):
            kept = sorted(set(self._retired()) & {key for key, _ in left.records.values()})
            sentence = f"{self._topic}: {len(kept)} deleted keys still have records after {CLEANED_S:.0f} s."
            yield Anomaly("not-compacted", sentence, tuple({"key": repr(key)} for key in kept[:10]), len(kept))
        yield from self.differences(left)

    def differences(self, left: Left) -> Iterator[Anomaly]:
        """Yield an anomaly for each record that was not sent, and each key that has a wrong value."""
        yield from self.changes(left)
        for key, sent_key in self._keys.items():
            value = left.newest.get(key)
            if value not in sent_key.values.values():
                kind = "lost-write" if value is None else "came-back"
                due = list(sent_key.values.values())[:1]
                yield Anomaly(kind, f"{self._topic}: key {key!r} has {value!r}, and should have {due}.", (), 1)

    def changes(self, left: Left) -> Iterator[Anomaly]:
        """Yield an anomaly for each record that differs from the one acknowledged at its offset."""
        for place, found in left.records.items():
            sent = self._records.get(place, found)
            if sent != found:
                sentence = f"{self._topic}: partition and offset {place} have {found}, and were acknowledged as {sent}."
                yield Anomaly("changed-record", sentence, (), 1)

    def read(self) -> Left:
        """Read the whole topic. Raises KafkaException, TimeoutError."""
        settings = {"group.id": self._topic, "enable.partition.eof": True, "auto.offset.reset": "error"}
        left, due = Left(), set(range(PARTITIONS))
        with closing(Consumer({**client_settings(self._bootstrap), **settings})) as consumer:
            consumer.assign([TopicPartition(self._topic, index, OFFSET_BEGINNING) for index in due])
            until = time.monotonic() + SILENCE_S
            while due:
                for message in consumer.consume(1000, 0.2):
                    self._take(message, left, due)
                    until = time.monotonic() + SILENCE_S
                if time.monotonic() > until:
                    raise TimeoutError(f"{self._topic} could not be read to its end for {SILENCE_S:.0f} s")
        return left

    def _take(self, message: Message, left: Left, due: set[int]) -> None:
        partition, error = message.partition(), message.error()
        assert partition is not None
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            due.discard(partition)
            return
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert isinstance(key, bytes)
        assert not isinstance(value, str)
        left.records[partition, offset] = key, value
        left.newest[key] = value

    def _retired(self) -> list[bytes]:
        return list(self._keys)[::2]

    def _send(self) -> None:
        keys, began = list(self._keys), time.monotonic()
        while not self._closing.wait(max(began + self._number / PER_SECOND - time.monotonic(), 0)):
            self._produce(self._rng.choice(keys), None if self._rng.random() < TOMBSTONES else self._value())

    def _value(self) -> bytes:
        return b"%d-" % self._number + self._rng.randbytes(VALUE_BYTES)

    def _produce(self, key: bytes, value: Value) -> None:
        number, sent = self._number, self._keys[key]
        self._number += 1
        sent.values[number] = value

        def answered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self.acknowledged += 1
                self._records[partition, offset] = key, value
                sent.acknowledged = max(sent.acknowledged, number)
                # Those before it can no longer be the newest.
                sent.values = {other: each for other, each in sent.values.items() if other >= sent.acknowledged}

        partition = int(key.rpartition(b"-")[2]) % PARTITIONS
        while True:
            try:
                self._producer.produce(self._topic, key=key, value=value, partition=partition, on_delivery=answered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return
