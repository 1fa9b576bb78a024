"""A steady producer, its latencies and errors, and the check that every acknowledged record can be read in order."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

FLUSH_S = 120.0
READ_S = 120.0
FILL_RECORD_BYTES = 10_000
WINDOW_S = 10.0


@dataclass(slots=True)
class RoundRobinLoad:
    """Records at a fixed rate, round-robin to all partitions, from a thread of its own."""

    servers: str
    topic: str
    partitions: int
    per_second: int
    record_bytes: int = 1000
    latencies: list[tuple[float, float]] = field(default_factory=list)
    """The time of each acknowledgement, and the seconds since the record was given to the producer."""
    errors: list[str] = field(default_factory=list)
    acknowledged: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The numbers of acknowledged records, by partition, in the order of their acknowledgements."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, after every record was acknowledged or failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def percentile_ms(self, begin: float, end: float, percent: float) -> float:
        """Return a percentile of the latencies of records that were acknowledged within this time."""
        found = sorted(latency for at, latency in self.latencies if begin <= at < end)
        return 1000 * found[min(int(len(found) * percent / 100), len(found) - 1)] if found else float("nan")

    def typical_percentile_ms(self, begin: float, end: float, percent: float) -> float:
        """Return the median of a percentile in windows of `WINDOW_S`: a few stalls of the disk do not change it."""
        windows = range(max(int((end - begin) / WINDOW_S), 1))
        begins = (begin + number * WINDOW_S for number in windows)
        return median(self.percentile_ms(each, each + WINDOW_S, percent) for each in begins)

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        )
        padding = b"x" * (self.record_bytes - 8)
        number, began_s = 0, time.monotonic()
        while not self._stop.is_set():
            while number < (time.monotonic() - began_s) * self.per_second:
                self._produce(producer, number, padding)
                number += 1
            producer.poll(0.005)
        if (left := producer.flush(FLUSH_S)) > 0:
            self.errors.append(f"{left} records were not acknowledged within {FLUSH_S:.0f} s")

    def _produce(self, producer: Producer, number: int, padding: bytes) -> None:
        given_s, partition = time.monotonic(), number % self.partitions

        def delivered(error: KafkaError | None, _: Message) -> None:
            now_s = time.monotonic()
            if error is not None:
                self.errors.append(str(error))
                return
            self.latencies.append((now_s, now_s - given_s))
            self.acknowledged[partition].append(number)

        producer.produce(self.topic, number.to_bytes(8, "big") + padding, partition=partition, on_delivery=delivered)


def fill(servers: str, topic: str, partitions: int, size: int) -> None:
    """Produce `size` bytes, evenly to all partitions."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 50, "batch.size": 1_000_000})
    value = bytes(FILL_RECORD_BYTES)
    for number in range(size // FILL_RECORD_BYTES):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0, "the data is acknowledged before anything is measured"


def ends(servers: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "grow"})
    try:
        places = (TopicPartition(topic, index) for index in range(partitions))
        return {place.partition: consumer.get_watermark_offsets(place, timeout=READ_S)[1] for place in places}
    finally:
        consumer.close()


def anomalies(servers: str, load: RoundRobinLoad, begins: Mapping[int, int]) -> list[str]:
    """Read the records from `begins` on. Return a sentence for each acknowledged record that is lost or twice."""
    last = ends(servers, load.topic, load.partitions)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "grow", "enable.auto.commit": False})
    found: dict[int, list[int]] = defaultdict(list)
    waiting = {index for index in begins if last[index] > begins[index]}
    consumer.assign([TopicPartition(load.topic, index, begins[index]) for index in waiting])
    deadline_s = time.monotonic() + READ_S
    while waiting and time.monotonic() < deadline_s:
        for message in consumer.consume(1000, 1.0):
            _note(message, found, waiting, last)
    consumer.close()
    sentences = [f"partition {index} was not read to its end" for index in sorted(waiting)]
    for index in range(load.partitions):
        if found[index] != load.acknowledged[index]:
            lost = len(set(load.acknowledged[index]) - set(found[index]))
            twice = len(found[index]) - len(set(found[index]))
            sentences.append(f"partition {index}: {lost} lost, {twice} twice, or not in their order")
    return sentences


def _note(message: Any, found: dict[int, list[int]], waiting: set[int], last: Mapping[int, int]) -> None:
    if message.error() is None:
        index = message.partition()
        found[index].append(int.from_bytes(message.value()[:8], "big"))
        if message.offset() + 1 >= last[index]:
            waiting.discard(index)
