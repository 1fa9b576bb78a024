"""Clients of every library with each mechanism that it has, while brokers restart and their certificates change.

Each client produces numbers and consumes them, with its library's default retries.
"""

import asyncio
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from secured_brokers import SecuredCluster, bearer_token

EVERY_S = 0.1
ANSWER_S = 120.0
USER = "alice"
SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CERTIFICATE = "mTLS"


class Client(ABC):
    """A producer and a consumer of one topic. `sent` are the acknowledged numbers, `received` those consumed."""

    library: str

    def __init__(self, cluster: SecuredCluster, mechanism: str, topic: str, place: Path) -> None:
        self.cluster, self.mechanism, self.topic, self.place = cluster, mechanism, topic, place
        self.listener = "TLS" if mechanism == CERTIFICATE else "SASLTLS"
        self.addresses = cluster.addresses(self.listener)
        self.sent: set[int] = set()
        self.received: set[int] = set()
        self.errors: list[str] = []
        self._no_more, self._done = threading.Event(), threading.Event()
        self._threads = [self._thread(self.produce), self._thread(self.consume)]

    def __str__(self) -> str:
        return f"{self.library}/{self.mechanism}"

    @abstractmethod
    def produce(self) -> None:
        """Send numbers until `_no_more` is set, and then wait for all acknowledgements."""

    @abstractmethod
    def consume(self) -> None:
        """Consume until `_done` is set."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end_sending(self) -> None:
        """Send nothing more, and return when everything sent has its answer."""
        self._no_more.set()
        self._threads[0].join(ANSWER_S)
        if self._threads[0].is_alive():
            self.errors.append("the producer does not end")

    def close(self) -> None:
        self._no_more.set()
        self._done.set()
        for thread in self._threads:
            thread.join(ANSWER_S)

    def numbers(self) -> "Any":
        """Yield a number every EVERY_S until `_no_more` is set."""
        number = 0
        while not self._no_more.wait(EVERY_S):
            yield number
            number += 1

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:
                self.errors.append(f"{work.__name__}: {error!r}")

        return threading.Thread(target=run, daemon=True, name=f"{self}-{work.__name__}")


class Confluent(Client):
    """confluent-kafka."""

    library = "confluent-kafka"
    INFORMATION = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
    """Codes of lost connections, which librdkafka replaces by itself."""

    def settings(self) -> dict[str, Any]:
        known = librdkafka(self)
        if self.mechanism == "OAUTHBEARER":
            known["oauth_cb"] = lambda _: bearer_token()
        return {**known, "error_cb": self._note, "log_level": 0}

    def _note(self, error: KafkaError | None) -> None:
        if error is not None and error.code() not in self.INFORMATION:
            self.errors.append(str(error))

    def produce(self) -> None:
        producer = Producer(self.settings())
        for number in self.numbers():
            producer.produce(self.topic, str(number).encode(), on_delivery=self._delivered)
            producer.poll(0)
        if producer.flush(ANSWER_S):
            self.errors.append("not all is acknowledged")

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.sent.add(int(message.value()))
        else:
            self.errors.append(f"produce: {error}")

    def consume(self) -> None:
        consumer = Consumer({**self.settings(), "group.id": self.topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topic])
        while not self._done.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                self._note(message.error())
            else:
                self.received.add(int(message.value()))
        consumer.close()


class KafkaPython(Client):
    """kafka-python."""

    library = "kafka-python"

    def settings(self) -> dict[str, Any]:
        class Tokens(KafkaPythonTokens):
            def __init__(self) -> None:
                pass

            def token(self) -> str:
                return bearer_token()[0]

        return python_settings(self) | ({"sasl_oauth_token_provider": Tokens()} if self._has_tokens else {})

    @property
    def _has_tokens(self) -> bool:
        return self.mechanism == "OAUTHBEARER"

    def produce(self) -> None:
        producer = KafkaProducer(**self.settings())
        for number in self.numbers():
            future = producer.send(self.topic, str(number).encode())
            future.add_callback(lambda _, number=number: self.sent.add(number))
            future.add_errback(lambda error: self.errors.append(f"produce: {error!r}"))
        producer.flush(ANSWER_S)
        producer.close()

    def consume(self) -> None:
        consumer = KafkaConsumer(
            self.topic, group_id=self.topic, auto_offset_reset="earliest", consumer_timeout_ms=200, **self.settings()
        )
        while not self._done.is_set():
            for message in consumer:
                self.received.add(int(message.value))
                if self._done.is_set():
                    break
        consumer.close()


class Aiokafka(Client):
    """aiokafka."""

    library = "aiokafka"

    def settings(self) -> dict[str, Any]:
        class Tokens(AiokafkaTokens):
            async def token(self) -> str:
                return bearer_token()[0]

        known = python_settings(self)
        if self.mechanism == "OAUTHBEARER":
            known["sasl_oauth_token_provider"] = Tokens()
        context = self.cluster.context(USER)
        return {key: value for key, value in known.items() if not key.startswith("ssl_")} | {"ssl_context": context}

    def produce(self) -> None:
        asyncio.run(self._produce())

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _produce(self) -> None:
        # Its default, acks=1, allows that a restart loses acknowledged records.
        async with AIOKafkaProducer(acks="all", **self.settings()) as producer:
            number = 0
            waiting: set[asyncio.Task[None]] = set()
            while not self._no_more.is_set():
                waiting.add(asyncio.ensure_future(self._send(producer, number)))
                number += 1
                await asyncio.sleep(EVERY_S)
            await asyncio.gather(*waiting)

    async def _send(self, producer: AIOKafkaProducer, number: int) -> None:
        try:
            await producer.send_and_wait(self.topic, str(number).encode())
        except Exception as error:
            self.errors.append(f"produce: {error!r}")
        else:
            self.sent.add(number)

    async def _consume(self) -> None:
        options = {"group_id": self.topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(self.topic, **options, **self.settings()) as consumer:
            while not self._done.is_set():
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    self.received.update(int(message.value) for message in messages)


class Processes(Client):
    """A producer process that reads numbers, and a consumer process that prints them."""

    ERRORS: tuple[str, ...] = ("error", "Error", "ERROR", "Exception")
    HARMLESS: tuple[str, ...] = ()

    @abstractmethod
    def producer_command(self) -> list[str]: ...

    @abstractmethod
    def consumer_command(self) -> list[str]: ...

    def produce(self) -> None:
        process = self._start("producer", self.producer_command(), subprocess.DEVNULL)
        assert process.stdin is not None
        sent = set()
        for number in self.numbers():
            process.stdin.write(f"{number}\n".encode())
            process.stdin.flush()
            sent.add(number)
        process.stdin.close()
        if process.wait(ANSWER_S) == 0:
            self.sent |= sent
        else:
            self.errors.append(f"the producer ended with {process.returncode}")
        self._look("producer")

    def consume(self) -> None:
        process = self._start("consumer", self.consumer_command(), subprocess.PIPE)
        assert process.stdout is not None
        lines = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        lines.start()
        while not self._done.wait(0.2):
            if process.poll() is not None:
                last = self._log("consumer").read_text(errors="replace").splitlines()[-2:]
                self.errors.append(f"the consumer ended with {process.returncode}: {last}")
                break
        process.terminate()
        process.wait(ANSWER_S)
        self._look("consumer")

    def _read(self, output: Any) -> None:
        for line in output:
            if line.strip().isdigit():
                self.received.add(int(line))

    def _start(self, name: str, command: list[str], output: int) -> "subprocess.Popen[bytes]":
        with self._log(name).open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=log)

    def _log(self, name: str) -> Path:
        return self.place / f"{self.topic}-{name}.log"

    def _look(self, name: str) -> None:
        for line in self._log(name).read_text(errors="replace").splitlines():
            if any(word in line for word in self.ERRORS) and not any(word in line for word in self.HARMLESS):
                self.errors.append(f"{name}: {line}")


class Kcat(Processes):
    """kcat."""

    library = "kcat"
    HARMLESS = ("Disconnected", "refused", "_TRANSPORT", "Broker transport failure", "brokers are down")

    def _words(self) -> list[str]:
        return [word for key, value in librdkafka(self).items() for word in ("-X", f"{key}={value}")]

    def producer_command(self) -> list[str]:
        return ["kcat", "-P", "-t", self.topic, *self._words()]

    def consumer_command(self) -> list[str]:
        return ["kcat", "-C", "-u", "-t", self.topic, "-o", "beginning", *self._words()]


class Java(Processes):
    """Kafka's console producer and consumer."""

    library = "Java"
    ERRORS = ("ERROR", "Exception")
    HARMLESS = ("DisconnectException", "Cancelled")
    jars: Path

    def _command(self, tool: str, *words: str) -> list[str]:
        settings = self.place / f"{self.topic}.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._token_url}"
        memory = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", allowed]
        name = f"org.apache.kafka.tools.{tool}"
        common = ["--bootstrap-server", self.addresses, "--topic", self.topic, "--command-config", str(settings)]
        return ["java", *memory, "-cp", f"{self.jars}/*", name, *common, *words]

    def producer_command(self) -> list[str]:
        return self._command("ConsoleProducer")

    def consumer_command(self) -> list[str]:
        return self._command("consumer.ConsoleConsumer", "--from-beginning")

    @property
    def _token_url(self) -> str:
        return (self.place / "token").as_uri()

    def _settings(self) -> dict[str, str]:
        login = "org.apache.kafka.common.security."
        known = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.cluster.ca_file),
        }
        if self.mechanism == CERTIFICATE:
            return known | {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(pkcs8(self.cluster, self.place)),
            }
        if self.mechanism == "OAUTHBEARER":
            return known | {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{login}oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{login}oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self._token_url,
                "sasl.oauthbearer.jwt.retriever.class": f"{login}oauthbearer.FileJwtRetriever",
            }
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return known | {
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": f'{login}{module} required username="{USER}" password="{USER}";',
        }


class FranzGo(Client):
    """franz-go, in a program that prints what it has sent and received."""

    library = "franz-go"
    program: Path

    def produce(self) -> None:
        words = {"brokers": self.addresses, "topic": self.topic, "mechanism": self.mechanism, "user": USER}
        words |= {"password": USER, "ca": str(self.cluster.ca_file), "token": str(self.place / "token")}
        if self.mechanism == CERTIFICATE:
            words["pem"] = str(self.cluster.pem(USER))
        self._flushed = threading.Event()
        command = [str(self.program), *(f"{key}={value}" for key, value in words.items())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ready.set()
        self._no_more.wait()
        assert self._process.stdin is not None
        self._process.stdin.write(b"flush\n")
        self._process.stdin.flush()
        self._flushed.wait(ANSWER_S)

    def consume(self) -> None:
        self._ready.wait(ANSWER_S)
        assert self._process.stdout is not None
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reader.start()
        self._done.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ANSWER_S)

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._ready = threading.Event()

    def _read(self, output: Any) -> None:
        for line in output:
            kind, _, rest = line.decode().strip().partition(" ")
            match kind:
                case "sent":
                    self.sent.add(int(rest))
                case "got":
                    self.received.add(int(rest))
                case "flushed":
                    self._flushed.set()
                case _:
                    self.errors.append(f"{kind} {rest}")


LIBRARIES: Mapping[type[Client], tuple[str, ...]] = {
    Confluent: (*SASL, CERTIFICATE),
    KafkaPython: (*SASL, CERTIFICATE),
    Aiokafka: (*SASL, CERTIFICATE),
    Kcat: (*SASL[:3], CERTIFICATE),
    Java: (*SASL, CERTIFICATE),
    FranzGo: (*SASL, CERTIFICATE),
}
"""The mechanisms of each library. kcat gets bearer tokens only from a server of its own choice."""


def librdkafka(client: Client) -> dict[str, Any]:
    """Return librdkafka's settings of a client."""
    if client.mechanism == CERTIFICATE:
        return {**client.cluster.client(USER), "bootstrap.servers": client.addresses, "security.protocol": "ssl"}
    known = {
        "bootstrap.servers": client.addresses,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(client.cluster.ca_file),
        "sasl.mechanism": client.mechanism,
    }
    return known | ({} if client.mechanism == "OAUTHBEARER" else {"sasl.username": USER, "sasl.password": USER})


def python_settings(client: Client) -> dict[str, Any]:
    """Return the settings that kafka-python and aiokafka have in common."""
    known = {
        "bootstrap_servers": client.addresses.split(","),
        "security_protocol": "SSL" if client.mechanism == CERTIFICATE else "SASL_SSL",
        "ssl_cafile": str(client.cluster.ca_file),
    }
    if client.mechanism == CERTIFICATE:
        pem = str(client.cluster.pem(USER))
        return known | {"ssl_certfile": pem, "ssl_keyfile": pem}
    known["sasl_mechanism"] = client.mechanism
    return (
        known
        if client.mechanism == "OAUTHBEARER"
        else known | {"sasl_plain_username": USER, "sasl_plain_password": USER}
    )


def pkcs8(cluster: SecuredCluster, place: Path) -> Path:
    """Return a file with the user's key in the only form that Java reads, and the certificate."""
    from cryptography.hazmat.primitives import serialization

    pem = cluster.pem(USER).read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = place / "java.pem"
    path.write_bytes(text + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return path


class TokenFile:
    """A file with a valid token, for clients that read one."""

    def __init__(self, path: Path) -> None:
        self._path, self._ended = path, threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(5):
            self._write()

    def _write(self) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(bearer_token()[0])
        new.replace(self._path)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


def wait_for(condition: Callable[[], bool], seconds: float = ANSWER_S) -> bool:
    """Wait until a condition holds. Return whether it does."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.1)
    return True
