"""Request metrics of a running broker: counts, durations, bytes and errors."""

import socket
import struct
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import Consumer, Producer
from http_fixture import Metrics, parsed
from topics import make_topic

PATIENCE_S = 15.0


class Measured:
    """A running broker, and how far its metrics have moved since the begin of the test."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self._before = self.all()

    def all(self) -> Metrics:
        with urlopen(f"http://{self.broker.settings['http.listen']}/metrics", timeout=PATIENCE_S) as response:
            return parsed(response.read().decode())

    def __call__(self, name: str, **labels: str) -> float:
        """Return the difference of one sample; one that does not exist counts as 0."""
        key = (f"cordwood_{name}", frozenset(labels.items()))
        return self.all().get(key, 0.0) - self._before.get(key, 0.0)

    def produce(self, value: bytes = b"v", **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **settings})
        producer.produce(self.topic, value)
        assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run one broker for all tests; each has a topic of its own."""
    address = f"127.0.0.1:{free_port()}"
    data = tmp_path_factory.mktemp("shared") / "data"
    broker = RunningBroker(data, http_listen=address, message_max_bytes="2000").start()
    yield broker
    broker.stop()


@pytest.fixture
def measured(shared: RunningBroker, request: pytest.FixtureRequest) -> Measured:
    return Measured(shared, make_topic(shared.bootstrap, request.node.name, 1))


def test_a_request_is_counted_with_its_time_and_its_bytes(measured: Measured) -> None:
    measured.produce(b"v" * 1000)
    assert measured("request_duration_seconds_count", api="Produce") == 1
    assert 0 < measured("request_duration_seconds_sum", api="Produce") < PATIENCE_S
    assert measured("request_duration_seconds_bucket", api="Produce", le="+Inf") == 1
    assert 1000 < measured("request_received_bytes_total", api="Produce") < 1200
    assert 0 < measured("request_sent_bytes_total", api="Produce") < 200
    assert measured("flush_appends_sum") >= 1


def test_a_request_that_wants_no_answer_has_no_duration(measured: Measured) -> None:
    measured.produce(acks=0)
    wait_until(lambda: measured("unanswered_requests_total", api="Produce") == 1, PATIENCE_S, "the request")
    assert measured("request_duration_seconds_count", api="Produce") == 0


def test_what_is_refused_is_counted_by_its_error(measured: Measured) -> None:
    measured.produce(b"v" * 3000)
    assert measured("request_errors_total", api="Produce", error="MESSAGE_TOO_LARGE") == 1


def test_what_a_consumer_reads_is_sent(measured: Measured) -> None:
    measured.produce(b"v" * 1500)
    consumer = Consumer(
        {"bootstrap.servers": measured.broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([measured.topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert measured("request_sent_bytes_total", api="Fetch") > 1500
    place = {"group": "readers", "topic": measured.topic, "partition": "0"}
    consumer.commit(message, asynchronous=False)
    assert measured("group_committed_offset", **place) == 1
    assert measured("group_lag_records", **place) == 0
    measured.produce()
    wait_until(lambda: measured("group_lag_records", **place) == 1, PATIENCE_S, "a lag")
    consumer.close()


def test_what_is_no_request_is_counted_too(measured: Measured) -> None:
    before = measured("connections_opened_total")
    with socket.create_connection(("127.0.0.1", measured.broker.port), PATIENCE_S) as odd:
        odd.sendall(struct.pack(">ihhih", 10, 9999, 0, 1, 0))
        assert odd.recv(1) == b""
    assert measured("malformed_requests_total") == 1
    assert measured("connections_opened_total") > before
    assert measured("connections_refused_total") == 0
