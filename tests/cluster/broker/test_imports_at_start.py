"""The modules that a broker imports at its start and after it: none of a feature that is off, and those of all APIs."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from broker_fixture import READY, RunningBroker, wait_until
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.index import api_key_map

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import HAND_WRITTEN
from cordwood.cluster.kafka.registry import KAFKA_APIS, load

OF_OPTIONAL_FEATURES = {
    *("aiohttp", "msgspec", "prometheus_client", "cordwood.cluster.http.server"),
    *("cryptography.exceptions", "joserfc", "obstore", "opentelemetry", "google.protobuf"),
}
OF_CLIENTS_AND_TESTS = {"confluent_kafka", "kafka", "rich.console", "hypothesis.core", "pytest", "numpy", "pyarrow"}
DONE = "event=imports.done"
MESSAGE_MODULES_MAX = 150
"""Kafka's messages have three modules in each version of an API: the classes of requests, of responses, and both."""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    """Yield a broker whose output has a line for each module that it imports."""
    monkeypatch.setenv("PYTHONVERBOSE", "1")
    running = RunningBroker(tmp_path / "data", imports_delay_ms="0")
    running.start()
    yield running
    running.stop()


def imports_in(output: str) -> list[str]:
    return re.findall(r"^import '(\S+)' #", output, re.MULTILINE)


def served_messages() -> set[str]:
    """Return the modules with the messages of all APIs but those that use none of kio's classes."""
    return {
        f"kio.schema.{api_key_map[key]}.v{version}.{kind}"
        for key in KAFKA_APIS
        if key not in HAND_WRITTEN
        for version in key.versions
        for kind in ("request", "response")
    }


def test_a_broker_begins_without_what_it_does_not_use(broker: RunningBroker) -> None:
    modules = set(imports_in(broker.output.partition(READY)[0]))
    assert "cordwood.cluster.broker.broker" in modules
    assert modules & OF_OPTIONAL_FEATURES == set()
    assert modules & OF_CLIENTS_AND_TESTS == set()
    assert sum(name.startswith("kio.schema.") for name in modules) < MESSAGE_MODULES_MAX


def test_after_its_start_a_broker_imports_all_that_requests_need(broker: RunningBroker) -> None:
    needed = served_messages() | {load(key).__name__ for key in ApiKey}
    last = f"import '{load(list(ApiKey)[-1]).__name__}'"
    wait_until(lambda: last in broker.output, 90, "the last import")
    before = imports_in(broker.output)
    assert needed - set(before) == set()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(timeout=60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("topic", b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group", "auto.offset.reset": "earliest"})
    consumer.subscribe(["topic"])
    assert consumer.poll(60) is not None
    consumer.close()
    admin.list_topics(timeout=60)
    later = imports_in(broker.output)[len(before) :]
    assert [name for name in later if name.startswith(("cordwood.", "kio."))] == []


def test_the_imports_of_a_broker_wait_for_their_delay(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data", imports_delay_ms="1500")
    broker.start()
    wait_until(lambda: DONE in broker.output, 90, "the last import")
    broker.stop()
    ready, done = (line for line in broker.output.splitlines() if READY in line or DONE in line)
    (seconds,) = re.findall(r"seconds=(\S+)", done)
    assert time_of(done) - time_of(ready) - timedelta(seconds=float(seconds)) >= timedelta(seconds=1.49)


def time_of(line: str) -> datetime:
    return datetime.fromisoformat(re.findall(r"timestamp=(\S+)", line)[0])
