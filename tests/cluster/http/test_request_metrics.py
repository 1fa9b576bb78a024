"""Request metrics of a running broker: counts, durations, bytes and errors."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import Consumer, Producer
from http_fixture import Metrics, parsed
from topics import make_topic

PATIENCE_S = 15.0


class Told:
    """A running broker and its metrics."""

    def __init__(self, broker: RunningBroker, address: str) -> None:
        self.broker, self._address = broker, address

    def all(self) -> Metrics:
        with urlopen(f"http://{self._address}/metrics", timeout=PATIENCE_S) as response:
            return parsed(response.read().decode())

    def __call__(self, name: str, **labels: str) -> float:
        """Return one sample; 0 if it does not exist."""
        return self.all().get((f"cordwood_{name}", frozenset(labels.items())), 0.0)

    def produce(self, value: bytes = b"v", **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **settings})
        producer.produce("t", value)
        assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    address = f"127.0.0.1:{free_port()}"
    broker = RunningBroker(tmp_path / "data", http_listen=address, message_max_bytes="2000").start()
    try:
        make_topic(broker.bootstrap, "t", 1)
        yield Told(broker, address)
    finally:
        broker.stop()


def test_a_request_is_counted_with_its_time_and_its_bytes(told: Told) -> None:
    told.produce(b"v" * 1000)
    assert told("request_duration_seconds_count", api="Produce") == 1
    assert 0 < told("request_duration_seconds_sum", api="Produce") < PATIENCE_S
    assert told("request_duration_seconds_bucket", api="Produce", le="+Inf") == 1
    assert 1000 < told("request_received_bytes_total", api="Produce") < 1200
    assert 0 < told("request_sent_bytes_total", api="Produce") < 200
    assert told("flush_appends_sum") >= 1


def test_a_request_that_wants_no_answer_has_no_duration(told: Told) -> None:
    told.produce(acks=0)
    wait_until(lambda: told("unanswered_requests_total", api="Produce") == 1, PATIENCE_S, "the request")
    assert told("request_duration_seconds_count", api="Produce") == 0


def test_what_is_refused_is_counted_by_its_error(told: Told) -> None:
    told.produce(b"v" * 3000)
    assert told("request_errors_total", api="Produce", error="MESSAGE_TOO_LARGE") == 1


def test_what_a_consumer_reads_is_sent(told: Told) -> None:
    told.produce(b"v" * 1500)
    consumer = Consumer(
        {"bootstrap.servers": told.broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert told("request_sent_bytes_total", api="Fetch") > 1500
    place = {"group": "readers", "topic": "t", "partition": "0"}
    consumer.commit(message, asynchronous=False)
    assert told("group_committed_offset", **place) == 1
    assert told("group_lag_records", **place) == 0
    told.produce()
    wait_until(lambda: told("group_lag_records", **place) == 1, PATIENCE_S, "a lag")
    consumer.close()


def test_what_is_no_request_is_counted_too(told: Told) -> None:
    before = told("connections_opened_total")
    with socket.create_connection(("127.0.0.1", told.broker.port), PATIENCE_S) as odd:
        odd.sendall(struct.pack(">ihhih", 10, 9999, 0, 1, 0))
        assert odd.recv(1) == b""
    assert told("malformed_requests_total") == 1
    assert told("connections_opened_total") > before
    assert told("connections_refused_total") == 0
