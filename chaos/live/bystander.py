"""A control client beside an attack or a fault: it produces, consumes, heartbeats, and records waits and errors."""

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from cordwood.chaos.live.flood.waits import NOTED_S, Wait
from cordwood.chaos.live.process import wait_for
from cordwood.chaos.live.security import client_settings
from cordwood.chaos.live.steady_member import SESSION_S, SteadyMember

GROUP, MEMBERS_GROUP = "bystander", "bystander-member"
PAUSE_S = 0.02
LAST_RECORDS_S = 20.0


@dataclass(slots=True)
class Observed:
    """The bystander's observations so far."""

    acknowledged: int = 0
    read: int = 0
    worst_ack_ms: float = 0.0
    heartbeats: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    """Waits longer than NOTED_S: for an acknowledgement, for a record to be read, for the answer to a heartbeat."""

    def waited(self, kind: str, began_s: float, ended_s: float) -> None:
        """Add a wait, with its start and end in seconds of the monotonic clock."""
        if ended_s - began_s > NOTED_S:
            self.waits.append(Wait(kind, began_s, ended_s))


class LiveBystander:
    """One idempotent producer, one group consumer and one group member, each in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, session_s: float = SESSION_S) -> None:
        self.observed = Observed()
        self._topic = topic
        self._stopping = threading.Event()
        self._is_broker_gone = False
        self._sent_s: dict[int, float] = {}
        """The send time of each record that has not been read yet."""
        self._assignments = 0
        common = {**client_settings(bootstrap), "error_cb": self._failed}
        self._producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer(
            {**common, "group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        )
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        self._member = SteadyMember(bootstrap, MEMBERS_GROUP, self._heard, self.observed.errors.append, session_s)

    def start(self) -> None:
        self._member.start()
        for thread in self._threads:
            thread.start()

    def wait_until_steady(self, seconds: float) -> None:
        """Wait until records are read and heartbeats answered, and drop the waits up to then. Raises TimeoutError."""
        if not wait_for(lambda: self.observed.read > 0 and self.observed.heartbeats > 0, seconds):
            raise TimeoutError(f"the bystander was not served within {seconds:.0f} s: {self.observed.errors[:3]}")
        self.observed.waits.clear()

    def stop(self, *, is_broker_gone: bool = False) -> Observed:
        """Wait until the consumer has every acknowledged record, where it can get them. Return the observations."""
        self._is_broker_gone = is_broker_gone
        self._stopping.set()
        self._member.stop()
        for thread in self._threads:
            thread.join()
        if self.observed.read != self.observed.acknowledged:
            self.observed.errors.append(f"{self.observed.acknowledged} acknowledged, {self.observed.read} read")
        return self.observed

    def _failed(self, error: KafkaError) -> None:
        self.observed.errors.append(str(error))

    def _heard(self, began_s: float, ended_s: float) -> None:
        self.observed.heartbeats += 1
        self.observed.waited("heartbeat", began_s, ended_s)

    def _produce(self) -> None:
        number = 0
        while not self._stopping.is_set():
            sent_s = self._sent_s[number] = time.monotonic()

            def acknowledged(error: KafkaError | None, _message: Message, sent_s: float = sent_s) -> None:
                if error is not None:
                    return self._failed(error)
                answered_s = time.monotonic()
                self.observed.acknowledged += 1
                self.observed.worst_ack_ms = max(self.observed.worst_ack_ms, (answered_s - sent_s) * 1e3)
                self.observed.waited("acknowledgement", sent_s, answered_s)
                return None

            self._producer.produce(self._topic, str(number), on_delivery=acknowledged)
            number += 1
            self._producer.poll(PAUSE_S)
        unanswered = self._producer.flush(0.1 if self._is_broker_gone else LAST_RECORDS_S)
        if unanswered:
            self.observed.errors.append(f"{unanswered} records were neither acknowledged nor refused")

    def _consume(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        deadline = None
        while deadline is None or (time.monotonic() < deadline and self.observed.read < self.observed.acknowledged):
            message = self._consumer.poll(0.1)
            if message is not None:
                self._take(message)
            if self._stopping.is_set() and not self._threads[0].is_alive() and deadline is None:
                deadline = time.monotonic() + (0.1 if self._is_broker_gone else LAST_RECORDS_S)
        if not self._is_broker_gone:
            self._consumer.close()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        if self._assignments > 1:
            self.observed.errors.append("the group's consumer was assigned its partition again: it had lost it")

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            return self._failed(error)
        if self._assignments > 1 and int(message.value() or b"-1") < self.observed.read:
            # The consumer begins again at the last committed offset.
            return None
        if message.value() != str(self.observed.read).encode():
            self.observed.errors.append(f"record {message.value()!r} came where {self.observed.read} was due")
        sent_s = self._sent_s.pop(self.observed.read, None)
        if sent_s is not None:
            self.observed.waited("record", sent_s, time.monotonic())
        self.observed.read += 1
        return None
