"""Clients that prove who they are by a certificate: each library produces and consumes over TLS."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from broker_fixture import RunningBroker
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from tls_peer import Certificates

WAIT_S = 30.0


class TlsBroker:
    """A broker whose only listener for clients asks for a certificate."""

    def __init__(self, place: Path) -> None:
        self.certificates = Certificates(place, "127.0.0.1")
        server = place / "server.pem"
        server.write_bytes(self.certificates.server.private_key_and_cert_chain_pem.bytes())
        self.broker = RunningBroker(place / "data")
        self.broker.settings |= {
            "listeners": f"SSL://{self.broker.bootstrap}",
            "ssl.keystore.location": str(server),
            "ssl.truststore.location": str(self.certificates.ca_file),
            "ssl.client.auth": "required",
        }
        self.broker.start()

    def python(self) -> dict[str, Any]:
        """Return the configuration that kafka-python and aiokafka share."""
        return {"bootstrap_servers": self.broker.bootstrap, "security_protocol": "SSL", "ssl_context": self.context()}

    def librdkafka(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca_file),
            "ssl.certificate.location": str(self.certificates.certificate_file),
            "ssl.key.location": str(self.certificates.key_file),
        }

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.certificates.ca_file)
        context.load_cert_chain(self.certificates.certificate_file, self.certificates.key_file)
        return context


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Yield one broker for this file's tests."""
    started = TlsBroker(tmp_path_factory.mktemp("certificates"))
    yield started
    started.broker.stop()


def test_confluent(secured: TlsBroker) -> None:
    outcomes: list[KafkaError | None] = []
    producer = Producer(secured.librdkafka())
    producer.produce("confluent", b"one", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    assert outcomes == [None]
    consumer = Consumer({**secured.librdkafka(), "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    [message] = consumer.consume(1, WAIT_S)
    assert (message.error(), message.value()) == (None, b"one")
    consumer.close()


def test_kafka_python(secured: TlsBroker) -> None:
    producer = KafkaProducer(**secured.python())
    producer.send("kafka-python", b"one").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **secured.python())
    assert next(consumer).value == b"one"
    consumer.close()


def test_aiokafka(secured: TlsBroker) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(**secured.python()) as producer:
            await producer.send_and_wait("aiokafka", b"one")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **secured.python()) as consumer:
            assert (await consumer.getone()).value == b"one"

    asyncio.run(scenario())
