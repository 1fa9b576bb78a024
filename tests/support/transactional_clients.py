"""Transactional producers of every Python client with one interface, and the readers of their records."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

WAIT_S = 30.0
END = b"end"
"""The value of the last record of a topic: what comes before it in its partition has been read by then."""

Places = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


class Fenced(Exception):
    """Another producer with the same transactional id has fenced this one."""


class TransactionalProducer(ABC):
    """A producer with a transactional id, which is initialized."""

    @abstractmethod
    def __init__(self, bootstrap: str, transactional_id: str) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record, and wait until it is acknowledged. Raises Fenced."""

    @abstractmethod
    def send_offsets(self, group_id: str, offsets: Places) -> None: ...

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction. Raises Fenced."""

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class ConfluentProducer(TransactionalProducer):
    """confluent-kafka, and with it librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                errors.append(error)

        self._producer.produce(topic, value=value, partition=partition, on_delivery=delivered)
        assert self._producer.flush(WAIT_S) == 0
        for error in errors:
            raise Fenced if error.code() in _FENCED else KafkaException(error)

    def send_offsets(self, group_id: str, offsets: Places) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group_id})
        places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        self._producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
        consumer.close()

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            raise (Fenced if error.args[0].code() in _FENCED else error) from error

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        """Do nothing: a producer ends with the last reference to it."""


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class KafkaPythonProducer(TransactionalProducer):
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call(lambda: self._producer.send(topic, value, partition=partition).get(WAIT_S))

    def send_offsets(self, group_id: str, offsets: Places) -> None:
        places = {
            kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(places, group_id)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)

    def _call(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise Fenced from error


class AiokafkaProducer(TransactionalProducer):
    """aiokafka, on an event loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await self._producer.start()

    def begin(self) -> None:
        self._run(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(lambda: self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, group_id: str, offsets: Places) -> None:
        places = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(lambda: self._producer.send_offsets_to_transaction(places, group_id))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction)

    def close(self) -> None:
        self._run(self._producer.stop)
        self._runner.close()

    def _run(self, work: Callable[[], Any]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(WAIT_S):
                await work()

        try:
            self._runner.run(whole())
        except aiokafka.errors.ProducerFenced as error:
            raise Fenced from error


PRODUCERS: Mapping[str, type[TransactionalProducer]] = {
    "confluent": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AiokafkaProducer,
}


def read_confluent(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    """Return the values of partition 0 before END."""
    isolation = "read_committed" if committed else "read_uncommitted"
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"only {values} came"
        assert message.error() is None, message.error()
        value = message.value()
        assert isinstance(value, bytes)
        if value == END:
            consumer.close()
            return values
        values.append(value)


def read_kafka_python(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    """Return the values of partition 0 before END."""
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, consumer_timeout_ms=WAIT_S * 1000
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    values: list[bytes] = []
    for message in consumer:
        if message.value == END:
            consumer.close()
            return values
        values.append(message.value)
    raise AssertionError(f"only {values} came")


def read_aiokafka(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    """Return the values of partition 0 before END."""

    async def read() -> list[bytes]:
        isolation = "read_committed" if committed else "read_uncommitted"
        place = aiokafka.TopicPartition(topic, 0)
        values: list[bytes] = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            while True:
                message = await asyncio.wait_for(consumer.getone(), WAIT_S)
                if message.value == END:
                    return values
                values.append(message.value)

    return asyncio.run(read())


READERS = {"confluent": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


def committed_offset(bootstrap: str, group_id: str, topic: str) -> int:
    """Return the group's committed offset of partition 0; -1001 for none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    (place,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    consumer.close()
    offset: int = place.offset
    return offset
