"""The modules that a broker imports at its start: none of a feature that is off, and of few APIs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from confluent_kafka.admin import AdminClient

OF_OPTIONAL_FEATURES = {
    *("aiohttp", "msgspec", "prometheus_client", "cordwood.cluster.http.server"),
    *("cryptography.exceptions", "joserfc", "obstore", "opentelemetry", "google.protobuf"),
}
OF_CLIENTS_AND_TESTS = {"confluent_kafka", "kafka", "rich.console", "hypothesis.core", "pytest", "numpy", "pyarrow"}
MESSAGE_MODULES_MAX = 150
"""Kafka's messages have three modules in each version of an API: the classes of requests, of responses, and both."""


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    """Yield a broker whose output has a line for each module that it imports."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    running = RunningBroker(tmp_path / "data")
    running.start()
    yield running
    running.stop()


def imported(broker: RunningBroker) -> set[str]:
    return set(re.findall(r"^import time: .*\| +(\S+)$", broker.output, re.MULTILINE))


def test_a_broker_begins_without_what_it_does_not_use(broker: RunningBroker) -> None:
    modules = imported(broker)
    assert "cordwood.cluster.broker.broker" in modules
    assert modules & OF_OPTIONAL_FEATURES == set()
    assert modules & OF_CLIENTS_AND_TESTS == set()
    assert sum(name.startswith("kio.schema.") for name in modules) < MESSAGE_MODULES_MAX


def test_a_handler_is_imported_at_the_first_request(broker: RunningBroker) -> None:
    assert "kio.schema.metadata.v13.response" not in imported(broker)
    AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60)
    assert "kio.schema.metadata.v13.response" in imported(broker)
    assert "kio.schema.describe_acls.v3.response" not in imported(broker)
