"""Clients that authenticate: each library with each mechanism that it has, and the admin APIs of SCRAM users."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import KafkaError as Error
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIFETIME_MS, SESSIONS = 1500, 2.2
WAIT_S = 30.0


class SecureBroker:
    """A broker whose only listener for clients has SASL, and the user admin with the password `secret`."""

    def __init__(self, data: Path) -> None:
        self._port = free_port()
        self.broker = RunningBroker(data)
        self.broker.settings |= {
            "listeners": f"PLAINTEXT://{self.broker.bootstrap},CLIENTS://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.plain.unencrypted.listeners": "CLIENTS",
            "connections.max.reauth.ms": str(LIFETIME_MS),
        }
        self.broker.options = ("--add-scram", "admin=secret")
        self.broker.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def librdkafka(self, mechanism: str, user: str = "admin", password: str = "secret") -> dict[str, str]:
        """Return the configuration of a client on librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def python(self, mechanism: str) -> dict[str, str]:
        """Return the configuration of kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "admin",
            "sasl_plain_password": "secret",
        }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Yield one broker for this file's tests."""
    started = SecureBroker(tmp_path_factory.mktemp("secure") / "data")
    yield started
    started.broker.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent(secure: SecureBroker, mechanism: str) -> None:
    assert len(AdminClient(secure.librdkafka(mechanism)).list_topics(timeout=WAIT_S).brokers) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secure: SecureBroker, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**secure.python(mechanism))
    producer.send(topic, b"one").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **secure.python(mechanism))
    assert next(consumer).value == b"one"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(secure: SecureBroker, mechanism: str) -> None:
    async def story() -> None:
        topic = f"aiokafka-{mechanism}"
        async with AIOKafkaProducer(**secure.python(mechanism)) as producer:
            await producer.send_and_wait(topic, b"one")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **secure.python(mechanism)) as consumer:
            assert (await consumer.getone()).value == b"one"

    asyncio.run(story())


@pytest.mark.parametrize(("mechanism", "said"), [("PLAIN", "Invalid username"), ("SCRAM-SHA-512", "invalid credent")])
def test_confluent_gets_the_reason_of_a_refusal(secure: SecureBroker, mechanism: str, said: str) -> None:
    errors: list[Error] = []
    producer = Producer({**secure.librdkafka(mechanism, password="wrong"), "error_cb": errors.append})
    wait_until(lambda: producer.poll(0.05) >= 0 and bool(errors), WAIT_S, "an error of authentication")
    assert errors[0].code() == Error._AUTHENTICATION
    assert said in errors[0].str()


def test_users_are_administered_by_a_client(secure: SecureBroker) -> None:
    admin = AdminClient(secure.librdkafka("SCRAM-SHA-256"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 10_000)
    for future in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"first")]).values():
        future.result(WAIT_S)
    found = admin.describe_user_scram_credentials(["bob"])["bob"].result(WAIT_S)
    assert [(one.mechanism, one.iterations) for one in found.scram_credential_infos] == [(info.mechanism, 10_000)]
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        bob = AdminClient(secure.librdkafka(mechanism, "bob", "first"))
        assert bob.list_topics(timeout=WAIT_S).brokers
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(WAIT_S)
    errors: list[Error] = []
    late = Producer({**secure.librdkafka("SCRAM-SHA-512", "bob", "first"), "error_cb": errors.append})
    wait_until(lambda: late.poll(0.05) >= 0 and bool(errors), WAIT_S, "an error of authentication")


def test_a_session_is_renewed_without_an_error(secure: SecureBroker) -> None:
    """A producer on librdkafka authenticates again before each end of its session."""
    errors: list[Error] = []
    producer = Producer({**secure.librdkafka("SCRAM-SHA-256"), "error_cb": errors.append, "linger.ms": 0})
    ends = time.monotonic() + SESSIONS * LIFETIME_MS / 1000

    def produce() -> bool:
        producer.produce("renewed", b"one", on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0.05)
        return time.monotonic() > ends

    wait_until(produce, WAIT_S, "the end of some sessions")
    assert producer.flush(WAIT_S) == 0
    assert errors == []


def test_the_password_is_in_no_log_line(secure: SecureBroker) -> None:
    test_confluent_gets_the_reason_of_a_refusal(secure, "PLAIN", "Invalid username")
    assert "event=authentication.failed" in secure.broker.output
    assert not {"secret", "wrong"} & set(
        re.findall(r"[a-z]+", secure.broker.output.replace("the password is wrong", ""))
    )
