"""A well-behaved client beside the trouble: it produces and reads back all the time, and remembers every error."""

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer

PAUSE_S = 0.02
LAST_RECORDS_S = 20.0


@dataclass(slots=True)
class Observed:
    """What the bystander has seen so far."""

    acknowledged: int = 0
    read: int = 0
    worst_ack_ms: float = 0.0
    errors: list[str] = field(default_factory=list)


class Bystander:
    """One idempotent producer and one group consumer, each in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.observed = Observed()
        self._topic = topic
        self._stopping = threading.Event()
        self._is_broker_gone = False
        common = {"bootstrap.servers": bootstrap, "error_cb": self._failed, "log_level": 0}
        self._producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer(
            {**common, "group.id": "bystander", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        )
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, *, is_broker_gone: bool = False) -> Observed:
        """Wait until the reader has all that was acknowledged, if it can come, and return what was observed."""
        self._is_broker_gone = is_broker_gone
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self.observed.read != self.observed.acknowledged:
            self.observed.errors.append(f"{self.observed.acknowledged} acknowledged, {self.observed.read} read")
        return self.observed

    def _failed(self, error: KafkaError) -> None:
        self.observed.errors.append(str(error))

    def _produce(self) -> None:
        number = 0
        while not self._stopping.is_set():
            sent = time.perf_counter()

            def acknowledged(error: KafkaError | None, _message: Message, sent: float = sent) -> None:
                if error is not None:
                    return self._failed(error)
                self.observed.acknowledged += 1
                self.observed.worst_ack_ms = max(self.observed.worst_ack_ms, (time.perf_counter() - sent) * 1e3)
                return None

            self._producer.produce(self._topic, str(number), on_delivery=acknowledged)
            number += 1
            self._producer.poll(PAUSE_S)
        self._producer.flush(0.1 if self._is_broker_gone else LAST_RECORDS_S)

    def _consume(self) -> None:
        self._consumer.subscribe([self._topic])
        deadline = None
        while deadline is None or (time.monotonic() < deadline and self.observed.read < self.observed.acknowledged):
            message = self._consumer.poll(0.1)
            if message is not None:
                self._take(message)
            if self._stopping.is_set() and not self._threads[0].is_alive() and deadline is None:
                deadline = time.monotonic() + (0.1 if self._is_broker_gone else LAST_RECORDS_S)
        if not self._is_broker_gone:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            return self._failed(error)
        if message.value() != str(self.observed.read).encode():
            self.observed.errors.append(f"record {message.value()!r} came where {self.observed.read} was due")
        self.observed.read += 1
        return None
