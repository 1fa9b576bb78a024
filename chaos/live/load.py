"""Idempotent producers that keep sending through every failure, and a reader of the final log."""

import random
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.chaos.live.ack_log import AckLog, SentRecord
from cordwood.chaos.live.process import wait_for

ANSWER_S = 20.0
SETTLE_S = 60.0
READ_S = 60.0
BURST = 20
POLL_S = 0.005


class ProducerLoad:
    """Some producers on one topic. `ack_log` has all their acknowledgements and failures."""

    def __init__(self, address: str, topic: str, partitions: int, producers: int, rng: random.Random) -> None:
        self.ack_log = AckLog()
        self._address, self._topic, self._partitions, self._rng = address, topic, partitions, rng
        self._padding = rng.randbytes(1000).hex().encode()
        self._producers = [Producer(_producer_settings(address)) for _ in range(producers)]

    def create_topic(self) -> None:
        """Create the topic. Raises KafkaException where the broker refuses."""
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        topic = NewTopic(self._topic, self._partitions, 1)
        admin.create_topics([topic], request_timeout=ANSWER_S)[self._topic].result(ANSWER_S)

    def run_for(self, seconds: float) -> None:
        """Keep sending; records that the broker does not take now stay in the producers' queues."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, producer in enumerate(self._producers):
                self._send_some(number, producer)
            for producer in self._producers:
                producer.poll(POLL_S)

    def run_until_served(self, seconds: float) -> bool:
        """Keep sending until one more record is acknowledged. Return False where none is within `seconds`."""
        before, end = len(self.ack_log.acknowledged), time.monotonic() + seconds
        while len(self.ack_log.acknowledged) == before:
            if time.monotonic() > end:
                return False
            self.run_for(POLL_S)
        return True

    def settle(self) -> bool:
        """Return whether every record sent is answered within SETTLE_S."""
        return wait_for(lambda: not any(producer.flush(0.1) for producer in self._producers), SETTLE_S)

    def read_back(self) -> dict[int, list[tuple[int, SentRecord]]]:
        """Return each partition's records from start to end. Raises TimeoutError where the end is not reached."""
        settings = {"bootstrap.servers": self._address, "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "error", "log_level": 0})
        try:
            return self._read(consumer)
        finally:
            consumer.close()

    def _send_some(self, number: int, producer: Producer) -> None:
        for _ in range(BURST):
            partition = self._rng.randrange(self._partitions)
            if len(producer) > 5000:
                return
            sent = self.ack_log.next(number, partition)
            # Long and short records, so that batches end anywhere within a page of the disk.
            padding = self._padding[: self._rng.randrange(len(self._padding))]
            producer.produce(
                self._topic, sent.encode(), key=padding, partition=partition, on_delivery=self._delivered(sent)
            )

    def _delivered(self, sent: SentRecord) -> Any:
        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.ack_log.fail(sent, error.str())
                return
            offset = message.offset()
            assert offset is not None, "an acknowledged record has an offset"
            self.ack_log.acknowledge(sent, offset)

        return answered

    def _read(self, consumer: Consumer) -> dict[int, list[tuple[int, SentRecord]]]:
        partitions = [TopicPartition(self._topic, partition) for partition in range(self._partitions)]
        bounds = [consumer.get_watermark_offsets(partition, timeout=ANSWER_S) for partition in partitions]
        due = {place.partition: end for place, (start, end) in zip(partitions, bounds, strict=True) if start < end}
        consumer.assign(
            [TopicPartition(self._topic, place, start) for place, (start, _) in enumerate(bounds) if place in due]
        )
        found: dict[int, list[tuple[int, SentRecord]]] = {place.partition: [] for place in partitions}
        deadline = time.monotonic() + READ_S
        while due:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read to the end: {', '.join(f'{p} to {end}' for p, end in due.items())}")
            for message in consumer.consume(1000, 0.2):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is not None or partition is None or offset is None or value is None:
                    continue
                found[partition].append((offset, SentRecord.decode(value)))
                if due.get(partition) == offset + 1:
                    del due[partition]
        return found


def _producer_settings(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "linger.ms": 2,
        "message.timeout.ms": 300_000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "log_level": 0,
    }
